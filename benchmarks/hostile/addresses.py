"""Spellings of addresses that nobody may reach, and names that resolve to them, through guard and resolver."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.exceptions import CannotResolveHostError
from twisted.internet.address import IPv4Address, IPv6Address

from benchmarks.hostile.room import Room, Tally
from benchmarks.hostile.targets import HOSTS, ODD
from benchmarks.name_server import Zone, served
from crawlproject import config
from crawlproject.errors import AddressRefused
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.addresses import port_of
from crawlproject.sources.domains import url_fault, with_canonical_host

# IANA's special-purpose registries, written down here once more: the guard's own table is what is tried.
_V4 = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
    *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
)
_V6 = (
    *("::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    *("5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "8000::/1"),
)
_PUBLIC = ("1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.0", "223.255.255.255", "[2606:4700::1]", "[2a00::1]")
_WIDE = str.maketrans("0123456789.", "０１２３４５６７８９。")
_CIRCLED = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
_AT_A_TIME = 50
_PATIENCE_S = 20.0


def spellings(address: ipaddress.IPv4Address) -> Iterator[str]:
    """Yield hosts that some parser, resolver or browser takes for an IPv4 address."""
    whole, parts, text = int(address), address.packed, str(address)
    first, *rest = parts
    yield from (text, f"{text}.", text.translate(_WIDE), text.translate(_CIRCLED), text.replace(".", "\uff0e"))
    yield from (text.replace(".", "%2e"), "".join(f"%{ord(char):02x}" for char in text), f"{text}%00.museum.org")
    yield from (text.replace(".", ".\u00ad", 1), text[:1] + "\u200b" + text[1:], f"\u2060{text}")
    yield from (str(whole), f"0x{whole:x}", f"0X{whole:08X}", f"0{whole:o}", f"{whole + 2**32}", f"0x1{whole:08x}")
    yield f"{first}.{whole & 0xFFFFFF}"
    yield f"{first}.{parts[1]}.{whole & 0xFFFF}"
    yield f"0x{first:x}.{whole & 0xFFFFFF}"
    yield ".".join(f"0x{part:x}" for part in parts)
    yield ".".join(f"0{part:o}" for part in parts)
    yield ".".join((f"0{first:o}", f"0x{rest[0]:02x}", *map(str, rest[1:])))
    yield ".".join(str(part + 256) for part in parts)
    hexed = f"{whole >> 16:x}:{whole & 0xFFFF:x}"
    for prefix in ("::ffff:", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:", "0:0:0:0:0:ffff:", "::FFFF:"):
        yield from (f"[{prefix}{text}]", f"[{prefix}{hexed}]")
    yield from (f"[2002:{hexed}::]", f"[2001:0:{hexed}::1]", f"[::ffff:{text}%25lo]")


def _within(network: str, chance: random.Random, count: int) -> list[Any]:
    """Return the first and the last address of a network, and some between them."""
    one = ipaddress.ip_network(network)
    numbers = {0, one.num_addresses - 1} | {chance.randrange(one.num_addresses) for _ in range(count)}
    return [one[number] for number in sorted(numbers)]


def _cases(zone: Zone) -> Iterator[tuple[str, bool]]:
    """Yield URLs, and whether they may be reached; names among them are put into the zone."""
    chance = random.Random(14)
    v4 = [address for network in _V4 for address in _within(network, chance, 6)]
    v6 = [address for network in _V6 for address in _within(network, chance, 6)]
    for address in v4:
        yield from ((f"http://{host}/", False) for host in spellings(address))
    for address in v6:
        yield f"http://[{address}]/", False
        yield f"https://[{address.exploded.upper()}]/", False
        yield f"http://[{address}%25eth0]/", False
    for number, address in enumerate((*v4, *v6)):
        answers = [str(address)]
        if address.version == 4:
            inner = (ipaddress.IPv6Address(f"{prefix}{address}") for prefix in ("::ffff:", "64:ff9b::"))
            answers += [one.exploded for one in inner]
        for answer in answers:
            for beside in ((), ("93.184.215.14",), ("2606:4700::1",)):
                name = f"n{number}-{len(zone.records)}.museum.org"
                zone.records[name] = [[answer, *beside]]
                yield f"http://{name}/", False
    yield from ((f"http://{host}/", False) for host in HOSTS)
    yield from ((url.format(port=80), False) for url in ODD)
    for port in (0, 21, 22, 25, 110, 6379, 8080, 9411, 11211, 27017, 65535, 65536, 99999):
        yield f"http://93.184.215.14:{port}/", False
    zone.records["open.museum.org"] = [["93.184.215.14"]]
    for host in (*_PUBLIC, "open.museum.org", "OPEN.museum.org."):
        yield from ((f"http://{host}/", True), (f"https://{host}/", True))


class _Receiver:
    """Twisted's side of a resolution."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.complete = asyncio.Event()

    def resolutionBegan(self, resolution: Any) -> None:  # noqa: N802
        """Do nothing."""

    def addressResolved(self, address: IPv4Address | IPv6Address) -> None:  # noqa: N802
        self.addresses.append(address.host)

    def resolutionComplete(self) -> None:  # noqa: N802
        self.complete.set()


async def _reached(resolver: Resolver, spelled: str) -> list[str]:
    """Return the addresses that a connection for a URL would get, by the way of a request."""
    try:
        url = Request(with_canonical_host(spelled)).url  # as a seed or redirect; the guard looks at it again
    except ValueError:
        return []
    if url_fault(url) is not None:
        return []
    await resolver.look_up(url)
    receiver = _Receiver()
    with suppress(AddressRefused, CannotResolveHostError):
        # Whatever `refusal` says: this is the last gate, and connections get what it gives.
        resolver.resolveHostName(receiver, urlsplit(url).hostname or "", port_of(url))
        await asyncio.wait_for(receiver.complete.wait(), _PATIENCE_S)
    if not resolver.may_be_reached(url):
        return [f"{one}, which the frontier would have refused" for one in receiver.addresses]
    return receiver.addresses or ["none, but the frontier lets it go"]


async def _try(tally: Tally, cases: Sequence[tuple[str, bool]], address: str) -> None:
    resolver = Resolver(config.load({"CRAWL_DNS_SERVERS": address}), None)

    async def one(url: str, allowed: bool) -> None:
        try:
            found = await _reached(resolver, url)
        except Exception as error:  # whatever it is, it must not be
            tally.judge(url, repr(error))
            return
        if allowed:
            tally.judge(url, "" if found and " " not in "".join(found) else f"may be reached, and is not: {found}")
        else:
            tally.judge(url, f"leads to {', '.join(found)}" if found else "")

    try:
        for start in range(0, len(cases), _AT_A_TIME):
            await asyncio.gather(*(one(url, allowed) for url, allowed in cases[start : start + _AT_A_TIME]))
    finally:
        await resolver.close()


def addresses(room: Room) -> Tally:
    """Try them all; some public ones too, which must be reached."""
    tally, zone = Tally("addresses"), Zone()
    with served(zone) as address:
        asyncio.run(_try(tally, room.some(list(_cases(zone))), address))
    return tally
