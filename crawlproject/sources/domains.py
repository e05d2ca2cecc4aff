"""Registrable domains: the source of a URL that names none."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from crawlproject.texts import plain_host

if TYPE_CHECKING:
    import tldextract


@cache
def _suffixes() -> tldextract.TLDExtract:
    import tldextract  # here: it imports requests, and most commands need no domain

    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)  # the list it ships with: no download


def normal_host(host: str) -> str:
    """Return a host in the spelling of a request's URL: lower case, names in other scripts as `xn--...`."""
    host = host.lower().rstrip(".")
    if not host.isascii():
        with suppress(UnicodeError):  # not a valid DNS name: left as it is
            host = host.encode("idna").decode()
    return host


def host_of_url(url: str) -> str:
    """Return the host of a URL, normalised; "" when it has none."""
    return normal_host(urlsplit(url).hostname or "")


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str:
    """Return the registrable domain of a host; an address, or a name without one, is its own.

    Names in other scripts are returned as in a request's URL (`xn--...`), so that both spellings are one source.
    """
    host = normal_host(host)
    parts = _suffixes()(host)
    label = parts.subdomain.rpartition(".")[2]
    if parts.suffix or not label or parts.domain.isdecimal():
        return parts.top_domain_under_public_suffix or host
    return f"{label}.{parts.domain}"  # the list's default rule: the last label of an unknown name is the suffix


def domain_of_url(url: str) -> str:
    """Return the registrable domain of the URL's host, "" when it has no host."""
    return domain_of(plain_host(url) or urlsplit(url).hostname or "")
