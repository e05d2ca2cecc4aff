"""The stored form of a request, and its digest: a header of three bytes, then msgpack. Nothing of it is executed.

The first byte is the version of this format, the second counts the deliveries, the third is the priority: Lua
reads and writes these. The rest is a map of the request's attributes that differ from the defaults, with
callback and errback as names of the spider's methods (`parse`, `parse_...`, `failed`).

Only the names in `_META`, and those that the spider declares, are stored of its meta, and only they are read
back: anyone who can write to Redis can add a URL to the crawl, as with a seed, but can set no proxy, no time-
out and no other option of Scrapy. Nor can they add a method, body, header or anything else that the spider does
not use: it says in `stored_attributes`, `stored_headers` and `stored_meta` what its requests may have.
"""

from __future__ import annotations

import hashlib
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgpack
from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter
from scrapy.spiders import CrawlSpider

from crawlproject.errors import BadEntry
from crawlproject.frontier.modes import modes
from crawlproject.models import (
    AGAIN,
    EXTRA,
    FETCH_TIME,
    FOUND,
    FREE_RETRIES,
    IDENTIFIER,
    LEASE,
    LED_BY,
    MODE,
    OF_FOUND,
    OPT_OUT,
    PACED_AS,
    PASSAGE,
    PRIORITIES,
    RETRIES,
    SITEMAP,
    SLOT,
    SOURCE,
    TLS_FAILURE,
    VIA,
)
from crawlproject.sources.domains import domain_of_url, url_fault
from crawlproject.sources.names import is_name
from crawlproject.texts import LONGEST_URL, compact_json, without_userinfo

VERSION = 1
LONGEST_ENTRY = 1024 * 1024  # bytes
LONGEST_EXTRA = 2_048  # bytes, as they are stored
_LONGEST_FOUND_ON = 512  # characters, as they are stored
_PLAIN = re.compile(r"[A-Za-z0-9/:._~?=&%-]*+")  # in which Scrapy changes nothing
_DEEPEST_EXTRA = 20  # objects and arrays in each other; JSON and msgpack go no deeper than Python's stack

_HEADER = 3
_LONGEST_URL = 65_536  # characters; a site may redirect to longer ones than a seed may have
_LONGEST_TEXT = 1_024  # characters
_MAX_COUNT = 1_000_000  # for every counter in meta
_MAX_VALUES = 256  # headers, cookies and so on, each
_DEFAULTS = Request("http://localhost/").to_dict()
_ALWAYS = frozenset({"url", "meta", "callback", "errback", "dont_filter", "headers"})
DECLARABLE = _ALWAYS | _DEFAULTS.keys()  # what `stored_attributes` may name
_OF_FOUND = frozenset({"encoding"})  # `response.follow` sets it to that of the page
_OF_BODY = frozenset({"Content-Type"})
_REFERER = frozenset({"Referer"})  # unless the spider says otherwise; Scrapy's redirects set it
# Of Scrapy's middlewares: left out, and set again.
_OF_MIDDLEWARES = frozenset({"Accept", "Accept-Encoding", "Accept-Language", "User-Agent"})
_HOP_BY_HOP = frozenset(  # RFC 9110, 7.6.1; and what says where a message ends or goes: never stored
    {
        *("Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"),
        *("Proxy-Authenticate", "Proxy-Authorization", "Content-Length", "Host", "Expect"),
    }
)
_METHODS = re.compile(r"(parse|failed)(_[a-z0-9_]+)?")  # of the spider: those that a stored request may name
# Of a CrawlSpider: the methods to which Scrapy gives the pages that its rules lead to, and their meta.
_METHODS_OF_RULES = frozenset({"_callback", "_errback"})
_META_OF_RULES = frozenset({"rule", "link_text"})

# What belongs to the request that led there. `Request(url, meta=response.meta)` would take it along.
_OF_ONE_REQUEST = frozenset(
    {
        *(LEASE, LED_BY, PACED_AS, PASSAGE, SLOT, RETRIES, FREE_RETRIES, AGAIN),
        *(IDENTIFIER, EXTRA, FOUND, VIA, OPT_OUT, TLS_FAILURE, FETCH_TIME),
    }
)
_OF_ONE_DOWNLOAD = ("redirect_", "download_")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT


def _is_source(value: Any) -> bool:
    return _is_text(value) and is_name(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_urls(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(url, str) and 0 < len(url) <= _LONGEST_URL for url in value)


def _is_reasons(value: Any) -> bool:
    return isinstance(value, list) and all(_is_count(reason) or _is_text(reason) for reason in value)


def _is_found(value: Any) -> bool:
    return isinstance(value, dict) and all(
        name in OF_FOUND and isinstance(text, str) and 0 < len(text) <= LONGEST_URL for name, text in value.items()
    )


def _is_via(value: Any) -> bool:
    match value:
        case [int(moment)]:
            return 0 <= moment < 2**32
        case [int(moment), shared, str(rest)]:
            return 0 <= moment < 2**32 and _is_count(shared) and len(rest) <= _LONGEST_FOUND_ON
    return False


def extra_fault(value: Any) -> str | None:
    """Return why `value` cannot be the `extra` of a seed; None if it can: a JSON object that is not too long."""
    if not isinstance(value, dict):
        return f"extra must be a JSON object: {without_userinfo(repr(value)):.80}"
    try:
        compact_json(value)
        size, depth = len(msgpack.packb(value)), _depth(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"extra that cannot be stored: {error!s:.200}"
    if depth > _DEEPEST_EXTRA:
        return f"extra that cannot be stored: more than {_DEEPEST_EXTRA} objects or arrays in each other"
    if size > LONGEST_EXTRA:
        return f"extra of {size:,} bytes, more than {LONGEST_EXTRA:,}: keep fewer columns, or shorter ones"
    return None


def _depth(value: Any) -> int:
    """Return how many objects and arrays there are in each other."""
    if not isinstance(value, (dict, list, tuple)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _is_extra(value: Any) -> bool:
    return extra_fault(value) is None


def _is_mode(value: Any) -> bool:
    known = modes()
    try:
        name, data = value
        known[name].stored(data)
    except Exception:  # whatever a plug-in meets in what a stranger may have written
        return False
    return isinstance(value, list) and isinstance(data, dict)


# What is stored of a request's meta: the project's own names, and Scrapy's for redirects and depth.
_META: Mapping[str, Callable[[Any], bool]] = {
    IDENTIFIER: _is_text,
    SOURCE: _is_source,
    PACED_AS: _is_source,
    RETRIES: _is_count,
    FREE_RETRIES: _is_count,
    AGAIN: _is_flag,
    FOUND: _is_found,
    VIA: _is_via,
    EXTRA: _is_extra,
    MODE: _is_mode,
    "redirect_times": _is_count,
    "redirect_ttl": _is_count,
    "redirect_urls": _is_urls,
    "redirect_reasons": _is_reasons,
    "depth": _is_count,
}


def encode(request: Request, spider: Spider, *, deliveries: int = 0) -> bytes:
    """Return the stored form of `request`, without meta that is not in `_META` and without others' headers.

    Scrapy's middlewares have set the latter, and set them again for the next attempt.

    Raises:
        TypeError, ValueError: it contains something that is not plain data, is too large, has an attribute
            that the spider does not declare in `stored_attributes`, or its callback is no allowed method of the
            spider.

    """
    data: dict[str, Any] = {name: getattr(request, name) for name in _DEFAULTS}
    kept = _headers_of(spider)
    data["headers"] = {
        _header(name): [value.decode("latin-1") for value in values]  # as text, which Redis can unpack
        for name, values in request.headers.items()
        if _header(name) in kept
    }
    data["meta"] = {name: value for name, value in request.meta.items() if is_stored(name, spider)}
    for name, prefix in (("callback", "parse"), ("errback", "failed")):
        method = data[name] = _name_of(data[name], spider)
        if isinstance(method, str) and not _is_callback(method, spider):
            raise ValueError(f"its {name} is {method}: rename it {prefix}_{method.lower().strip('_')}")
    data = {name: value for name, value in data.items() if name == "url" or value != _DEFAULTS[name]}
    priority = min(max(data.pop("priority", 0), 0), PRIORITIES - 1)
    try:
        _check(data, spider)
    except BadEntry as error:
        raise ValueError(str(error)) from None
    body: bytes = msgpack.packb(data)
    if len(body) > LONGEST_ENTRY - _HEADER:
        raise ValueError(f"request of {len(body)} bytes, more than {LONGEST_ENTRY}")
    return bytes((VERSION, deliveries, priority)) + body


def _name_of(method: Any, spider: Spider) -> Any:
    method = getattr(method, "own", method)  # of a lease: `lease_queue.LeasedErrback`
    if not callable(method):
        return method
    name = getattr(method, "__name__", "")
    if getattr(spider, name, None) != method:
        raise ValueError(f"{method} is not a method of {spider}")
    return name


def decode(entry: bytes, spider: Spider) -> Request:
    """Return the request that `entry` stores.

    Raises:
        BadEntry: it was not written by `encode`, or by another version of it.

    """
    if len(entry) < _HEADER or entry[0] != VERSION:
        raise BadEntry(f"stored request of unknown version {entry[:1].hex() or 'none'}")
    if len(entry) > LONGEST_ENTRY:
        raise BadEntry(f"stored request of {len(entry)} bytes, more than {LONGEST_ENTRY}")
    try:
        data = msgpack.unpackb(entry[_HEADER:])
        if not isinstance(data, dict) or not data.keys() <= _DEFAULTS.keys():
            raise BadEntry("stored request is not a map of a request's attributes")
        _check(data, spider)
        for name in getattr(spider, "needs_meta", ()):
            if name not in data.get("meta", {}):
                raise BadEntry(f"stored request has no {name!r} in its meta")
        meta = {name: value for name, value in data.get("meta", {}).items() if is_stored(name, spider)}
        kept = _headers_of(spider)
        headers = {
            name: [value.encode("latin-1") for value in values]
            for name, values in data.get("headers", {}).items()
            if _header(name) in kept
        }
        methods = {name: getattr(spider, data[name]) for name in ("callback", "errback") if data.get(name)}
        return Request(**data | methods | {"meta": meta, "headers": headers, "priority": entry[2]})
    except BadEntry:
        raise
    except Exception as error:  # whatever msgpack, Request or the spider's names find wrong
        raise BadEntry(f"stored request cannot be read: {type(error).__name__} {error!s:.200}".rstrip()) from None


def is_stored(name: str, spider: Spider) -> bool:
    """Tell whether a name of a request's meta is stored."""
    of_rules = _META_OF_RULES if isinstance(spider, CrawlSpider) else frozenset()
    return name in _META or name in of_rules or name in getattr(spider, "stored_meta", ())


def _is_callback(method: str, spider: Spider) -> bool:
    of_rules = isinstance(spider, CrawlSpider) and method in _METHODS_OF_RULES
    return of_rules or _METHODS.fullmatch(method) is not None


def is_header_stored(name: bytes | str, spider: Spider) -> bool:
    """Tell whether a header of a request is stored, or set again by a middleware."""
    return _header(name) in _headers_of(spider) or _header(name) in _OF_MIDDLEWARES


def _headers_of(spider: Spider) -> frozenset[str]:
    """Return the names of the headers that are stored; with a body, its type is."""
    of_body = _OF_BODY if "body" in getattr(spider, "stored_attributes", ()) else frozenset()
    return _storable(frozenset(getattr(spider, "stored_headers", _REFERER)) | of_body)


@lru_cache
def _storable(declared: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_header, declared)) - _HOP_BY_HOP


@lru_cache(maxsize=256)
def _header(name: bytes | str) -> str:
    """Return the one spelling of a header's name that is compared."""
    return (name.decode("latin-1") if isinstance(name, bytes) else name).title()


def _check(data: Mapping[str, Any], spider: Spider) -> None:
    """Check that attributes are such as `encode` writes, as far as `Request` itself does not check them.

    Raises:
        BadEntry: they are not; the message says which.

    """
    url = data.get("url")
    if not isinstance(url, str) or len(url) > _LONGEST_URL:
        raise BadEntry("stored request has no URL")
    if fault := url_fault(url):
        raise BadEntry(f"stored request has an invalid URL: {fault}")
    _check_declared(data, spider)
    for name in ("headers", "cookies", "cb_kwargs", "flags"):
        values = data.get(name) or ()
        if isinstance(values, (dict, list)) and len(values) > _MAX_VALUES:
            raise BadEntry(f"stored request has {len(values)} {name}, more than {_MAX_VALUES}")
    for name in ("callback", "errback"):
        method = data.get(name)
        if method is not None and not (isinstance(method, str) and _is_callback(method, spider)):
            raise BadEntry(f"stored request has a {name} that is not allowed: {method!r:.80}")
    meta = data.get("meta", {})
    if not isinstance(meta, dict):
        raise BadEntry("stored request has meta that is not a map")
    for name, is_valid in _META.items():
        if name in meta and not is_valid(meta[name]):
            raise BadEntry(f"stored request has meta {name!r} with an invalid value: {meta[name]!r:.80}")


def _check_declared(data: Mapping[str, Any], spider: Spider) -> None:
    """Check that there is nothing that the spider does not use.

    Raises:
        BadEntry: there is; the message says what.

    """
    declared: frozenset[str] = getattr(spider, "stored_attributes", frozenset())
    own = declared if getattr(spider, "one_item_each", False) else declared | _OF_FOUND
    headers = data.get("headers") or {}
    if not isinstance(headers, dict):
        raise BadEntry("stored request has headers that are not a map")
    kept = _headers_of(spider)
    found = [
        name
        for name, value in data.items()
        if name not in _ALWAYS and name not in own and value != _DEFAULTS[name]
    ]
    if found:
        names = ", ".join(f'"{name}"' for name in sorted({*declared, *found}))
        raise BadEntry(
            f"stored request has {found[0]!r}, which the spider {spider.name} does not use; "
            f"to use it, declare stored_attributes = frozenset({{{names}}})"
        )
    for name in headers:
        if _header(name) not in kept and _header(name) not in _OF_MIDDLEWARES:
            raise BadEntry(
                f"stored request has a header {name!r:.80}, which the spider {spider.name} does not use"
            )


def seed_url(request: Request) -> str:
    """Return the URL that the request started from, before any redirect."""
    urls: list[str] = request.meta.get("redirect_urls") or [request.url]
    return urls[0]


def via(url: str, found_on: str = "") -> list[Any]:
    """Return what is stored, as `VIA`, of how `url` was found: now (s), and, if that is known, on which page.

    Of that page's address, what follows the beginning that both have in common is stored, if it is not too long.
    """
    moment, plain = int(time.time()), len(_PLAIN.match(found_on)[0])  # type: ignore[index]  # it matches any text
    shared = bisect_left(range(1, plain + 1), True, key=lambda end: not url.startswith(found_on[:end]))
    is_told = 0 < len(found_on) <= shared + _LONGEST_FOUND_ON
    return [moment, shared, found_on[shared:]] if is_told else [moment]


def found_by(request: Request) -> dict[str, str]:
    """Return what an event says of how its page was found: `found_on`, `discovered_at`; {} if nothing is known."""
    moment, *where = request.meta.get(VIA) or (None,)
    if moment is None:
        return {}
    found = {"discovered_at": datetime.fromtimestamp(moment, UTC).isoformat()}
    if where:
        shared, rest = where
        found["found_on"] = seed_url(request)[:shared] + rest
    return found


def paced_as(request: Request) -> str:
    """Return the source that the request's picture is crawled and counted as; only its event has `SOURCE`."""
    source: str = request.meta.get(PACED_AS) or request.meta[SOURCE]
    return source


def named_source(request: Request) -> str | None:
    """Return the source that may be named for the request's URL: that of its seed, unless redirects have led to
    another domain.
    """
    source: str | None = request.meta.get(SOURCE)
    return source if domain_of_url(request.url) == domain_of_url(seed_url(request)) else None


def with_deliveries(entry: bytes, deliveries: int) -> bytes:
    """Return the stored request with its deliveries set."""
    return entry[:1] + bytes((min(deliveries, 255),)) + entry[2:]


def peek(entry: bytes) -> dict[str, Any]:
    """Return the stored attributes, for people to read; empty when they cannot be decoded."""
    try:
        data = msgpack.unpackb(entry[_HEADER:])
    except Exception:
        return {}
    meta = data.get("meta", {}) if isinstance(data, dict) else None
    return data if isinstance(meta, dict) and all(isinstance(name, str) for name in meta) else {}


def url_of(entry: bytes) -> str:
    """Return the URL that would be requested; "" when it cannot be decoded."""
    url = peek(entry).get("url", "")
    return url if isinstance(url, str) else ""


def renewed(entry: bytes) -> bytes:
    """Return the stored request as it was when new: with its first URL, and all counters at 0."""
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
        if name not in {RETRIES, FREE_RETRIES, PACED_AS} and not name.startswith("redirect_")
    }
    body: bytes = msgpack.packb(data)
    return bytes((entry[0], 0, entry[2])) + body


class SeenFilter(BaseDupeFilter):
    """Takes the place of scrapy-redis' dupefilter, and is never asked.

    The function `enqueue` checks whether a request was seen, in the same step that stores it. How what was seen is
    kept stands in the Lua module `seen_filter`.
    """


def digest(request: Request) -> bytes:
    """Return the digest by which the shared seen filter knows a request, 8 bytes."""
    return digest_of(name_in(request.meta), request.url)


def name_in(meta: Mapping[str, Any]) -> str:
    """Return what the seen filter knows a request by, beside its URL: the identifier of its picture, if any.

    A sitemap is another request than a page at its address, and that of a picture in a mode than its fetch.
    """
    name: str = meta.get(IDENTIFIER, "sitemap" if SITEMAP in meta else "")
    return f"{meta[MODE][0]}\n{name}" if MODE in meta else name


def digest_of(identifier: str, url: str) -> bytes:
    """Return the digest of the request for `url`, as its seed had it: 8 bytes.

    Of SHA-1, which Redis has, too: so a function can forget what it drops (`naming.digest_of`).
    """
    return hashlib.sha1(f"{identifier}\n{url}".encode(), usedforsecurity=False).digest()[:8]


def detached(request: Request) -> Request:
    """Return `request`, or a copy of it, without what belongs to the request that led there."""
    kept = {
        name: value
        for name, value in request.meta.items()
        if name not in _OF_ONE_REQUEST and not name.startswith(_OF_ONE_DOWNLOAD)
    }
    return request if len(kept) == len(request.meta) else request.replace(meta=kept)
