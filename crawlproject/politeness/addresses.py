"""Which addresses may be crawled: public ones, on the web's ports, and what the operator has opened.

What a stranger's URL, DNS answer or redirect names is never trusted: the host that a crawler reaches may be the
operator's own (server-side request forgery, OWASP; CWE-918). The tables are IANA's special-purpose registries
(RFC 6890 and its updates), spelled out because `ipaddress.is_global` differs between versions of Python.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from crawlproject.config import Network
from crawlproject.texts import url_fault

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

WEB_PORTS = frozenset({80, 443})
RECENT = 1024  # URLs, hosts: each is looked at several times on its way from its lease to the wire

_SPECIAL: tuple[tuple[str, str], ...] = (
    ("this network", "0.0.0.0/8"),
    ("private", "10.0.0.0/8"),
    ("shared (carrier-grade NAT)", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"),
    ("link-local (cloud metadata)", "169.254.0.0/16"),
    ("private", "172.16.0.0/12"),
    ("protocol assignment", "192.0.0.0/24"),
    ("documentation", "192.0.2.0/24"),
    ("6to4 relay", "192.88.99.0/24"),
    ("private", "192.168.0.0/16"),
    ("benchmarking", "198.18.0.0/15"),
    ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"),
    ("multicast", "224.0.0.0/4"),
    ("reserved", "240.0.0.0/4"),
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("unique local", "fc00::/7"),
    ("link-local", "fe80::/10"),
    ("site-local", "fec0::/10"),
    ("multicast", "ff00::/8"),
    ("protocol assignment or Teredo", "2001::/23"),
    ("documentation", "2001:db8::/32"),
    ("6to4", "2002::/16"),
    ("documentation", "3fff::/20"),
    ("segment routing", "5f00::/16"),
)
_SPECIAL_NETWORKS = tuple((kind, ipaddress.ip_network(network)) for kind, network in _SPECIAL)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out for global unicast
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last four bytes are the IPv4 address

# What browsers take for an IPv4 address (WHATWG URL, "ends in a number") and resolvers read in various ways.
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


@lru_cache(RECENT)
def check_url(url: str) -> str | None:
    """Return why the text of a URL forbids to request it, None if it does not; `check_addresses` follows."""
    if fault := url_fault(url):
        return fault
    host = urlsplit(url).hostname or ""
    if literal(host) is None and _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        return f"odd spelling of an address: {host[:60]!r}"
    return None


@lru_cache(RECENT)
def port_of(url: str) -> int:
    """Return the port of a URL that `check_url` has let pass."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


@lru_cache(RECENT)
def literal(host: str) -> Address | None:
    """Return the address if `host` is one in its usual notation, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def check_addresses(
    addresses: Iterable[Address], port: int, networks: Iterable[Network], ports: Iterable[int]
) -> str | None:
    """Return why a host with `addresses` may not be connected to at `port`, None if it may.

    One bad address is enough: a name with a public and a private address is how DNS rebinding begins.
    `networks` are open on every port; elsewhere 80, 443 and `ports` are.
    """
    for address in addresses:
        if _in_any(address, networks):
            continue
        if kind := _special(address):
            return f"{kind} address {address}: CRAWL_ALLOW_NETWORKS opens networks"
        if port not in WEB_PORTS and port not in ports:
            return f"port {port}: CRAWL_ALLOW_PORTS opens ports"
    return None


def _in_any(address: Address, networks: Iterable[Network]) -> bool:
    inner = _inner(address)
    return any(each in network for each in (address, inner) if each is not None for network in networks)


def _inner(address: Address) -> Address | None:
    """Return the IPv4 address that an IPv6 address stands for: mapped, or behind a NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


def _special(address: Address) -> str | None:
    """Return why an address is not part of the public Internet, None if it is."""
    if getattr(address, "scope_id", None):
        return "scoped"
    inner = _inner(address)
    if inner is not None:
        return _special(inner)
    for kind, network in _SPECIAL_NETWORKS:
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return "reserved"
    return None
