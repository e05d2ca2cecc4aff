"""A request as it is stored: three bytes of ours, then msgpack. Nothing of it is ever executed.

The first byte is the version of this format, the second counts the deliveries, the third is the priority;
the Lua scripts read and write those. What follows is a map of the request's attributes that are not the
defaults, with callback and errback as names of the spider's methods.
"""

from __future__ import annotations

from typing import Any

import msgpack
from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from crawlproject.errors import BadEntry
from crawlproject.records import LEASE, OPT_OUT, PRIORITIES, RETRIES, TLS_FAILURE, WAIVED

VERSION = 1

_HEADER = 3
_DEFAULTS = Request("http://localhost/").to_dict()
_OF_THIS_ATTEMPT = frozenset(
    {
        LEASE,
        OPT_OUT,
        TLS_FAILURE,
        "download_slot",
        "download_timeout",
        "download_latency",
        "download_maxsize",
        "download_warnsize",
    }
)


def encode(request: Request, spider: Spider, *, deliveries: int = 0) -> bytes:
    """Return `request` as stored.

    Raises:
        TypeError, ValueError: its meta holds something that is no plain data, or a callback is no method of
            the spider.

    """
    data = request.to_dict(spider=spider)
    data.pop("_class", None)  # a FormRequest or JsonRequest is its body by now
    data["meta"] = {name: value for name, value in data["meta"].items() if name not in _OF_THIS_ATTEMPT}
    data = {name: value for name, value in data.items() if name == "url" or value != _DEFAULTS[name]}
    priority = min(max(data.pop("priority", 0), 0), PRIORITIES - 1)
    body: bytes = msgpack.packb(data)
    return bytes((VERSION, deliveries, priority)) + body


def decode(entry: bytes, spider: Spider) -> Request:
    """Return the request that `entry` stores.

    Raises:
        BadEntry: it was not written by `encode`, or by another version of it.

    """
    if len(entry) < _HEADER or entry[0] != VERSION:
        raise BadEntry(f"stored request of unknown version {entry[:1].hex() or 'none'}")
    try:
        data = msgpack.unpackb(entry[_HEADER:])
        if not isinstance(data, dict) or not data.keys() <= _DEFAULTS.keys():
            raise BadEntry("stored request is no map of a request's attributes")
        return request_from_dict(_DEFAULTS | data | {"priority": entry[2]}, spider=spider)
    except BadEntry:
        raise
    except Exception as error:  # whatever msgpack, Request or the spider's names find wrong
        raise BadEntry(f"stored request cannot be read: {error}") from None


def seed_url(request: Request) -> str:
    """Return the URL that the request began with, before any redirect."""
    urls: list[str] = request.meta.get("redirect_urls") or [request.url]
    return urls[0]


def deliveries_of(entry: bytes) -> int:
    """Return how often the stored request was lost."""
    return entry[1] if len(entry) >= _HEADER else 0


def with_deliveries(entry: bytes, deliveries: int) -> bytes:
    """Return the stored request with its deliveries set."""
    return entry[:1] + bytes((min(deliveries, 255),)) + entry[2:]


def peek(entry: bytes) -> dict[str, Any]:
    """Return the attributes that are stored, for people to read; empty when they cannot be."""
    try:
        data = msgpack.unpackb(entry[_HEADER:])
    except Exception:
        return {}
    meta = data.get("meta", {}) if isinstance(data, dict) else None
    return data if isinstance(meta, dict) and all(isinstance(name, str) for name in meta) else {}


def renewed(entry: bytes) -> bytes:
    """Return the stored request as it was when it was new: first URL, nothing counted against it."""
    data = peek(entry)
    if not data:
        return with_deliveries(entry, 0)
    meta = data.get("meta", {})
    urls = meta.get("redirect_urls")
    if isinstance(urls, list) and urls:
        data["url"] = urls[0]
    data["meta"] = {
        name: value
        for name, value in meta.items()
        if name not in {RETRIES, WAIVED} and not name.startswith("redirect_")
    }
    body: bytes = msgpack.packb(data)
    return bytes((entry[0], 0, entry[2])) + body
