"""Which addresses may be crawled: others' public addresses on the web's ports, and what the operator has opened.

URLs, DNS answers and redirects are never trusted: they may lead the crawler to the operator's own hosts
(server-side request forgery, OWASP; CWE-918). The tables are IANA's special-purpose registries (RFC 6890 and its
updates), spelled out because `ipaddress.is_global` differs between versions of Python.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from crawlproject.config import Network
from crawlproject.sources.domains import NAT64, RECENT, origin_of

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

WEB_PORTS = frozenset({80, 443})

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
    ("local NAT64", "64:ff9b:1::/48"),
    # Public by the registries, but within a cloud its own services. Most clouds keep theirs at link-local, unique
    # local or shared addresses (169.254.169.254, fd00:ec2::254, 100.100.100.200), which are above.
    # Azure's wire server, DNS and agents:
    # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    ("cloud service (Azure)", "168.63.129.16/32"),
    # IBM Cloud's services and service endpoints, which it reserves within every VPC:
    # https://cloud.ibm.com/docs/vpc?topic=vpc-service-endpoints-for-vpc
    ("cloud service (IBM)", "161.26.0.0/16"),
    ("cloud service (IBM)", "166.8.0.0/14"),
    # Equinix Metal's metadata, told apart by the machine that asks: metadata.platformequinix.com, formerly
    # metadata.packet.net: https://deploy.equinix.com/developers/docs/metal/server-metadata/metadata
    ("cloud metadata (Equinix Metal)", "192.80.8.124/32"),
)
_SPECIAL_NETWORKS = tuple((kind, ipaddress.ip_network(network)) for kind, network in _SPECIAL)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")  # all that IANA has allocated for global unicast


def port_of(url: str) -> int:
    """Return the port of a URL that has no fault (`url_fault`)."""
    return _port_of(origin_of(url))


@lru_cache(RECENT)
def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


@lru_cache(RECENT)
def literal(host: str) -> Address | None:
    """Return the address that a host is in its usual spelling, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """What may be connected to. `deny` goes before `allow`, and that before all that is built in.

    `allow` is open on every port; elsewhere `ports` are open besides 80 and 443. An IPv6 address that stands for
    an IPv4 address is judged by that: if it is IPv4-mapped, or one of NAT64 (RFC 6052), by the well-known prefix
    or by those in `nat64`. `is_own` tells whether an address is one of this machine's.
    """

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    ports: tuple[int, ...] = ()
    nat64: tuple[ipaddress.IPv6Network, ...] = ()
    is_own: Callable[[Address], bool] = lambda _: False

    def refusal(self, addresses: Iterable[Address], port: int) -> str | None:
        """Return why a host with `addresses` must not be connected to at `port`; None if it may.

        One forbidden address suffices: a name with a public and a private address is how DNS rebinding begins.
        """
        for address in addresses:
            judged = self._translated(address) or [address]
            if self.deny and (network := _network_of({address, *judged, *_tunnelled(address)}, self.deny)):
                return f"address {address}: CRAWL_DENY_NETWORKS closes {network}"
            if self.allow and all(_network_of([one], self.allow) for one in judged):
                continue
            if kind := next((kind for one in judged if (kind := self._kind(one))), None):
                return f"{kind} address {address}: CRAWL_ALLOW_NETWORKS opens networks"
            if port not in WEB_PORTS and port not in self.ports:
                return f"port {port}: CRAWL_ALLOW_PORTS opens ports"
        return None

    def _translated(self, address: Address) -> list[Address]:
        """Return the IPv4 addresses that an IPv6 address stands for: one for each prefix that it has."""
        if isinstance(address, ipaddress.IPv4Address):
            return []
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        return [_embedded(address, prefix) for prefix in (NAT64, *self.nat64) if address in prefix]

    def _kind(self, address: Address) -> str | None:
        """Return what forbids an address, None for another's public address."""
        return _special(address) or ("this machine's own" if self.is_own(address) else None)


def _network_of(addresses: Iterable[Address], networks: Iterable[Network]) -> Network | None:
    """Return the first of the networks that has one of the addresses."""
    addresses = list(addresses)
    return next((network for network in networks for address in addresses if address in network), None)


def _embedded(address: ipaddress.IPv6Address, prefix: ipaddress.IPv6Network) -> ipaddress.IPv4Address:
    """Return the IPv4 address behind a NAT64 prefix: as in RFC 6052, section 2.2, its octet 8 left out."""
    octets = address.packed
    if prefix.prefixlen < 96:
        octets = octets[:8] + octets[9:]
    first = min(prefix.prefixlen // 8, 12)
    return ipaddress.IPv4Address(octets[first : first + 4])


def _tunnelled(address: Address) -> list[Address]:
    """Return the IPv4 addresses in one of 6to4 or Teredo, which are refused anyway unless they are opened."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    return [one for one in (address.sixtofour, *(address.teredo or ())) if one is not None]


@lru_cache(RECENT)
def _special(address: Address) -> str | None:
    """Return the kind of an address that is not public, or a cloud's own; None for a public address."""
    if getattr(address, "scope_id", None):
        return "scoped"
    for kind, network in _SPECIAL_NETWORKS:
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return "reserved"
    return None
