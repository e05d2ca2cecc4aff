"""Hosts: their one spelling, and the registrable domain, which is the source of a URL that names none."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import ada_url
import w3lib.url

from crawlproject.texts import printable, without_userinfo

if TYPE_CHECKING:
    import tldextract

RECENT = 1024  # URLs, hosts or origins cached: each is looked at several times on its way from lease to wire
NAT64 = IPv6Network("64:ff9b::/96")  # the well-known prefix of RFC 6052

_LONGEST = 253  # characters of a host
_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")
_NEVER_IN_A_HOST = re.compile(r"[\x00-\x20/?#@\\\[\]]")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")  # or an IPv4 address

# What most URLs are like: an origin and a path, of which nothing can be read in two ways
_PLAIN = re.compile(r"(https?://[A-Za-z0-9_.:-]+)(?:/[!-~]*)?")


@lru_cache(4_096)
def canonical_host(host: str) -> str:
    """Return the one spelling of a host, by which all is kept that concerns it; "" for what is no host.

    It is spelled as browsers request it (the WHATWG URL standard, by Ada): names by UTS 46 without transitional
    mappings, addresses in their usual form, without a dot at the end. An IPv6 address may be in brackets, and has
    no zone; one that stands for an IPv4 address (IPv4-mapped, or NAT64 by the well-known prefix) becomes that.
    """
    bare = host[1:-1] if host[:1] == "[" else host
    try:
        if ":" in bare:
            address = IPv6Address(bare)
            short = IPv4Address(address.packed[12:]) if address in NAT64 else address.ipv4_mapped or address
            return "" if address.scope_id else str(short)
        if len(bare) > _LONGEST or _NEVER_IN_A_HOST.search(bare):  # else Ada would read a part of it
            return ""
        found: str = ada_url.URL(f"http://{bare}/").hostname.removesuffix(".")
    except ValueError:
        return ""
    return found if len(found) <= _LONGEST and _NAME.fullmatch(found) else ""


def _idna_bytes(host: str) -> bytes:
    return (canonical_host(host) or host).encode()


# Scrapy would spell the hosts of requests and redirects by Python's codec (IDNA 2003), by which straße.de is
# strasse.de, another site. No setting changes that.
w3lib.url._idna_bytes = _idna_bytes  # type: ignore[attr-defined,assignment]


def with_canonical_host(url: str) -> str:
    """Return a URL with its host in the one spelling; as it is, where it has none, or in upper case."""
    return url if plain_host(url) else _with_usual_host(url)


def _with_usual_host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = canonical_host(parts.hostname or ""), parts.port
    except ValueError:
        return url
    place = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    if not host or "@" in parts.netloc or parts.netloc.lower() == place:
        return url
    return url.replace(f"//{parts.netloc}", f"//{place}", 1)


def host_of_url(url: str) -> str:
    """Return the host of a URL in its one spelling, "" when it has none."""
    try:
        return plain_host(url) or canonical_host(urlsplit(url).hostname or "")
    except ValueError:
        return ""


@lru_cache(RECENT)
def _plain_origin(url: str) -> str | None:
    found = _PLAIN.fullmatch(url)
    return found[1] if found else None


def origin_of(url: str) -> str:
    """Return the origin of a URL that is as most are, any other URL whole: a key for what its origin decides."""
    return _plain_origin(url) or url


def plain_host(url: str) -> str | None:
    """Return the host of a URL that is as most are, in its one spelling; None for others, which may be valid, too.

    The URL has no fault. Only its origin is parsed, once for all URLs of it.
    """
    origin = _plain_origin(url)
    return _host_of_origin(origin) if origin else None


@lru_cache(RECENT)
def _host_of_origin(origin: str) -> str | None:
    return None if _fault_in_parts(origin) else canonical_host(urlsplit(origin).hostname or "")


def url_fault(url: str) -> str | None:
    """Return why a URL cannot be fetched, None if it can. User names and passwords are not repeated.

    Its host must be in its one spelling, but for upper case: whoever takes a URL in gives it that
    (`with_canonical_host`). A URL with userinfo (RFC 3986, section 3.2.1) is refused: it was not meant for us.
    Addresses are judged elsewhere.
    """
    return None if plain_host(url) else _fault_in_parts(url)


def _fault_in_parts(url: str) -> str | None:
    try:
        url.encode()
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return "invalid URL" + ("" if "@" in url else f": {printable(str(error))}")
    fault, shown = None, printable(without_userinfo(url[:1000]), 80)
    if _NEVER_IN_A_URL.search(url):
        fault = "URL with spaces or control characters"
    elif parts.scheme.lower() not in {"http", "https"}:
        fault = f"URL must begin with http:// or https://: {shown}"
    elif "@" in parts.netloc:
        fault = "URL with a user name or password: leave them out"
    elif not host.strip(".") or port == 0:
        fault = f"URL without a host or with port 0: {shown}"
    elif not canonical_host(host):
        fault = f"URL with an invalid host name: {shown}"
    elif (usual := _with_usual_host(url)) != url:
        fault = f"unusual spelling of {printable(usual, 80)}: {shown}"
    return fault


@cache
def _suffixes() -> tldextract.TLDExtract:
    import tldextract  # here: it imports requests, and most commands need no domain

    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)  # the list it ships with: no download


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str:
    """Return the registrable domain of a host; an address, or a name without one, is its own. "" for no host.

    It is in the one spelling of hosts, so that all spellings are one source.
    """
    host = canonical_host(host)
    parts = _suffixes()(host)
    label = parts.subdomain.rpartition(".")[2]
    if parts.suffix or not label or parts.domain.isdecimal():
        return parts.top_domain_under_public_suffix or host
    return f"{label}.{parts.domain}"  # the list's default rule: the last label of an unknown name is the suffix


def domain_of_url(url: str) -> str:
    """Return the registrable domain of the URL's host, "" when it has no host."""
    return domain_of(host_of_url(url))
