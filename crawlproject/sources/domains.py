"""Registrable domains: what a URL belongs to when nobody says which source it is of."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import tldextract


@cache
def _suffixes() -> tldextract.TLDExtract:
    import tldextract  # here: it brings requests along, and most commands ask for no domain

    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)  # the list it ships with: no download


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str:
    """Return the registrable domain of a host; an address or a name without one is its own.

    Names in other scripts come out as in a request's URL (`xn--...`), so that both spellings are one source.
    """
    host = host.lower().rstrip(".")
    if not host.isascii():
        with suppress(UnicodeError):  # no name that DNS could know: left as it is
            host = host.encode("idna").decode()
    parts = _suffixes()(host)
    label = parts.subdomain.rpartition(".")[2]
    if parts.suffix or not label or parts.domain.isdecimal():
        return parts.top_domain_under_public_suffix or host
    return f"{label}.{parts.domain}"  # the list's last rule: of an unknown name the last label is the suffix


def domain_of_url(url: str) -> str:
    """Return the registrable domain of the URL's host, "" when it has none."""
    return domain_of(urlsplit(url).hostname or "")
