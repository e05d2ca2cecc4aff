"""Parsers of setting values: each returns a typed value, or raises ValueError saying what it must be."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from crawlproject import plugins
from crawlproject.models import IMAGE_FORMATS, OPT_OUTS

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Parser = Callable[[Any], Any]

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052


def whole(low: int, high: int | None = None) -> Parser:
    """Return a parser for whole numbers from `low` to `high`."""

    def parse(value: Any) -> int:
        try:
            number = int(str(value).strip().replace("_", ""))
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or number < low or (high is not None and number > high):
            raise ValueError(f"a whole number from {low}" + (f" to {high}" if high is not None else ""))
        return number

    return parse


def number(low: float, high: float = math.inf, *, above: bool = False) -> Parser:
    """Return a parser for finite numbers from `low`, or only above it, to `high`."""

    def parse(value: Any) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and low <= number <= high) or (above and number == low):
            most = "" if high == math.inf else f" to {high:g}"
            raise ValueError(f"a number {'above' if above else 'from'} {low:g}{most}")
        return number

    return parse


def flag(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in {"true", "false", "1", "0", "yes", "no"}:
        raise ValueError("True or False")
    return word in {"true", "1", "yes"}


def choice(*allowed: str) -> Parser:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(repr(name) for name in allowed))
        return str(value)

    return parse


def text(value: Any) -> str | None:
    return str(value).strip() or None


def items(value: Any) -> list[str]:
    """Return the parts of a list, written as one, or as a text with commas; a number is a list of one."""
    parts: Iterable[Any] = str(value).split(",") if isinstance(value, str | int) else value
    return [item for part in parts if (item := str(part).strip())]


def networks(value: Any) -> tuple[Network, ...]:
    """Return the networks; one that is IPv4-mapped as that of IPv4, by which its addresses are judged."""
    try:
        networks = tuple(ipaddress.ip_network(item) for item in items(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"networks separated by commas, such as 127.0.0.0/8,::1 ({error})") from None
    for network in networks:
        if (meant := _ipv4_in(network, _NAT64)) is not None:
            raise ValueError(
                f"networks such as 127.0.0.0/8, not {network}: {meant} closes or opens these, also by NAT64"
            )
    return tuple(_ipv4_in(network, _MAPPED) or network for network in networks)


def _ipv4_in(network: Network, prefix: ipaddress.IPv6Network) -> ipaddress.IPv4Network | None:
    """Return the IPv4 network that a part of `prefix`, of 96 bits, stands for; None for another, or all of it."""
    if network.version == 4 or network.prefixlen <= 96 or not network.subnet_of(prefix):
        return None
    return ipaddress.IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))


def nat64_prefixes(value: Any) -> tuple[ipaddress.IPv6Network, ...]:
    """Return the prefixes, of the lengths that RFC 6052 defines (section 2.2)."""
    try:
        prefixes = tuple(ipaddress.IPv6Network(item) for item in items(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"networks such as 2001:db8:64::/96 ({error})") from None
    for prefix in prefixes:
        if prefix.prefixlen not in {32, 40, 48, 56, 64, 96}:
            raise ValueError(f"networks of 32, 40, 48, 56, 64 or 96 bits (RFC 6052), not {prefix}")
    return prefixes


def listed(what: str, parse: Callable[[str], Any]) -> Parser:
    """Return a parser for lists, separated by commas, each part of which `parse` reads; `what` they must be."""

    def read(value: Any) -> tuple[Any, ...]:
        try:
            parts = items(value)
        except TypeError:
            raise ValueError(what) from None
        found, wrong = dict[Any, None](), []
        for item in parts:
            try:
                found[parse(item)] = None
            except ValueError:
                wrong.append(item)
        if wrong:
            raise ValueError(f"{what}; not {', '.join(wrong)}")
        return tuple(found)

    return read


def one_of(names: Iterable[str], change: Callable[[str], str]) -> Callable[[str], str]:
    """Return what reads one of some names, after a change of its case."""
    known = tuple(names)
    return lambda item: known[known.index(change(item))]


ports = listed("ports from 1 to 65535, separated by commas", whole(1, 65535))
shard_numbers = listed("a list of numbers of shards, from 0, separated by commas", whole(0, 255))
opt_outs = listed(f"opt-outs, separated by commas, of {', '.join(OPT_OUTS)}", one_of(OPT_OUTS, str.lower))


def _server(server: str) -> str:
    try:
        ipaddress.ip_address(server)
    except ValueError:
        ipaddress.ip_address(split(f"//{server}").hostname or "")
    return server


servers = listed("addresses such as 9.9.9.9, 127.0.0.1:5353 or [2620:fe::fe]:53, separated by commas", _server)


def address(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(str(value).strip()))
    except ValueError:
        raise ValueError("an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::") from None


def sizes(value: Any) -> tuple[int, ...]:
    what = "a list of 1 to 8 different whole numbers from 16 to 2048, separated by commas"
    found = listed(what, whole(16, 2048))(value)
    if not 0 < len(found) <= 8 or len(found) < len(items(value)):
        raise ValueError(what)
    return tuple(found)


def _function(name: str) -> str:
    name = plugins.offered("analyses").get(name, name)
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError(name)
    return name


media = listed("audio, video or both, separated by commas", one_of(("audio", "video"), str.lower))


def analyses(value: Any) -> tuple[str, ...]:
    what = "a list of functions, as module:function or by the name of a plug-in's, separated by commas"
    names = listed(what, _function)(value)
    if len({name.partition(":")[2] for name in names}) < len(items(value)) or len(names) > 16:
        raise ValueError("a list of up to 16 functions with different names, by which events have their results")
    return tuple(names)


def formats(value: Any) -> tuple[str, ...]:
    known = (*IMAGE_FORMATS, *plugins.offered("formats"))
    all_known = f"{', '.join(known)}, to which plug-ins add (crawlproject/contrib/formats)"
    names = listed(f"formats, separated by commas, of {all_known}", one_of(known, str.upper))(value)
    if not names:
        raise ValueError(f"at least one format of {', '.join(known)}")
    return tuple(name for name in known if name in names)


def split(url: str) -> SplitResult:
    """Return the parts of `url`; empty parts when it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises, too
    except ValueError:
        return urlsplit("")
    return parts


def contact(value: Any) -> str | None:
    url = text(value)
    if url is None:
        return None
    parts = split(url)
    web = parts.scheme in {"http", "https"} and parts.hostname
    mail = parts.scheme == "mailto" and "@" in parts.path
    if not (web or mail) or re.search(r"[\s()<>]", url):
        raise ValueError("a URL that begins with http://, https:// or mailto:")
    return url


def namespace(value: Any) -> str:
    if not re.fullmatch(r"(?!\.+$)[A-Za-z0-9_.{}-]{1,64}", str(value)):  # it may be the name of a folder
        raise ValueError("1 to 64 of letters, digits and _.-{}, not dots alone")
    return str(value)


def folder(value: Any) -> str:
    path = str(value).strip()
    if not path or "://" in path:
        raise ValueError("a folder of this machine")
    return path


def storage(value: Any) -> str:
    uri = str(value).strip()
    scheme = uri.partition("://")[0].lower() if "://" in uri else ""
    if not uri or scheme not in {"", "file", "s3"}:
        raise ValueError("a folder or s3://bucket/prefix/")
    if scheme == "s3" and not re.fullmatch(r"s3://[^/]+/(.*/)?", uri):
        raise ValueError("s3://bucket/ or s3://bucket/prefix/, with a slash at the end")
    return uri


def optional(parse: Parser) -> Parser:
    """Return a parser that reads an empty value as None."""
    return lambda value: parse(value) if str(value).strip() else None


def share(value: Any) -> float:
    part: float = number(0)(value)
    if part > 1:
        raise ValueError("a number from 0 to 1")
    return part
