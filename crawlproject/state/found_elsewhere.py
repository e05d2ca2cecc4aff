"""What was found on pages for a shard that is away: it waits in an outbox of another shard until that is back.

Who carries it (crossings.py) admits it there as if it were found just then, within the budgets and bounds of that
shard, unless it was seen. All of that may happen twice, as when a worker dies in between: what was admitted is
known then, and of requests to be stored seen or not it is noted how far they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import msgpack

from crawlproject.state.client import State
from crawlproject.state.scripts import Budget, LinkGroup, NewRequest

_LINKS, _REQUESTS = "links", "requests"  # kinds of items in an outbox
_SERVER_BEHIND, _WAYS_BEHIND = 4, 5  # its body, in an item: who has numbered it; how many ways it has come
_MOST = 512  # links in one call
_DIGEST_BYTES = 32  # see frontier/dupefilter.py
_WORKER = ""  # of requests that stand for no seed
_IN_OTHER_SHARD = 3  # and above: the number of that shard is so much less
_MOST_WAYS = 3  # from shard to shard, in one go: see the Lua module `shards`


class _Foreign(Exception):
    """An item that is not written by crawlproject."""


async def send_links(
    here: State,
    to: int,
    groups: Sequence[LinkGroup],
    options: Mapping[str, Any],
    *,
    most: int | None,
    ways: int = 1,
) -> bool:
    """Have links wait in an outbox of `here` for shard `to`; a replica has them, too.

    `options` are those of `Scripts.discover`, `ways` how many they have come then. False if more than `most` links
    and requests would wait there; None: no such bound.
    """
    budget = options.get("budget")
    body = {
        "options": {**options, "budget": budget and astuple(budget)},
        "groups": [[one.domain, one.source, one.entries, one.digests, one.hosts] for one in groups],
    }
    count = sum(len(group.entries) for group in groups)
    return await here.scripts.send_found(to, _LINKS, _packed(body), count=count, most=most, ways=ways)


async def send_requests(
    here: State,
    to: int,
    requests: Sequence[NewRequest],
    options: Mapping[str, Any],
    *,
    most: int | None,
    ways: int = 1,
) -> bool:
    """Have requests that callbacks yielded wait there likewise; `options` are those of `Scripts.enqueue_some`."""
    body = {"options": dict(options), "requests": [astuple(request) for request in requests]}
    return await here.scripts.send_found(to, _REQUESTS, _packed(body), count=len(requests), most=most, ways=ways)


async def bring(here: State, target: State, items: Sequence[bytes]) -> list[bytes] | None:
    """Admit what was found, among items that `here` offers `target`; return them as `receive` is to take them.

    None if that has to wait for a leader of `target` that knows the catalogue. What proves to be for a third
    shard goes there by the outbox; after some ways it stays at `here` for a while, as the shards disagree. An item
    not written by crawlproject is marked as such.

    Raises:
        REDIS_TROUBLE: one of the two fails.

    """
    known = list(items)
    for part in _parts(known):
        is_done = await (_bring_links if "groups" in part else _bring_requests)(here, target, part)
        if not is_done:
            return None
    return known


async def _bring_links(here: State, target: State, part: Mapping[str, Any]) -> bool:
    groups, options = part["groups"], part["options"]
    reply = await target.scripts.discover(groups, **options)
    if reply is None:
        return False
    moved: dict[int, list[LinkGroup]] = {}
    for group, state in zip(groups, reply.closed, strict=True):
        if state >= _IN_OTHER_SHARD:
            moved.setdefault(state - _IN_OTHER_SHARD, []).append(group)
    for shard, some in moved.items():
        to = _next(here, target, shard, part)
        await send_links(here, to, some, options, most=None, ways=part["ways"] + 1)
    return True


async def _bring_requests(here: State, target: State, part: Mapping[str, Any]) -> bool:
    requests, options = part["requests"], part["options"]
    once = (f"shard:{here.number}:{part['server']}", part["number"])
    found = await target.scripts.enqueue_some(_WORKER, requests, once=once, **options)
    if found is None:
        return False
    moved: dict[int, list[NewRequest]] = {}
    for at, shard in found.elsewhere.items():
        moved.setdefault(shard, []).append(requests[at])
    for shard, some in moved.items():
        to = _next(here, target, shard, part)
        await send_requests(here, to, some, options, most=None, ways=part["ways"] + 1)
    return True


def _next(here: State, target: State, shard: int, part: Mapping[str, Any]) -> int:
    """Return where something goes that `target` says is for `shard`: what has just stayed goes on."""
    stays = part["ways"] >= _MOST_WAYS and target.number != here.number
    return here.number if stays else shard


def _parts(items: list[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield what was found, as much as one call takes; mark what is not written by crawlproject in `items`."""
    last: dict[str, Any] | None = None  # links of several pages, to different domains
    for place, item in enumerate(items):
        try:
            part = _part_in(item)
        except _Foreign:
            items[place] = _as_foreign(item)
            continue
        if part is None:
            continue
        if "groups" not in part:
            yield part
        elif last is not None and _goes_with(part, last):
            last["groups"].extend(part["groups"])
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


def _goes_with(part: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Tell whether links may go in one call with others; not with another page's links to the same domain.

    A call is taken for a page, which has its share of what its source's pages earn (the Lua module `budgets`).
    """
    is_alike = part["options"] == last["options"] and part["ways"] == last["ways"]
    return is_alike and _links(part) + _links(last) <= _MOST and _names(part).isdisjoint(_names(last))


def _names(part: Mapping[str, Any]) -> set[tuple[str | None, str]]:
    return {(group.source, group.domain) for group in part["groups"]}


def _links(part: Mapping[str, Any]) -> int:
    return sum(len(group.entries) for group in part["groups"])


def _part_in(item: bytes) -> dict[str, Any] | None:
    """Return what was found that is in an item, None for one of another kind.

    Raises:
        _Foreign: it is not written by crawlproject.

    """
    try:
        number, kind, body, *others = unpacked(item)
        if kind not in {_LINKS.encode(), _REQUESTS.encode()}:
            return None
        part: dict[str, Any] = msgpack.unpackb(body, strict_map_key=False)
        options, part["ways"] = part["options"], int(others[_WAYS_BEHIND])
        if kind == _LINKS.encode():
            part["groups"] = [_group(*group) for group in part["groups"]]
            part["options"] = _discover_options(**options)
        else:
            part["number"], part["server"] = int(number), others[_SERVER_BEHIND].decode()
            part["requests"] = [_request(*request) for request in part["requests"]]
            part["options"] = _enqueue_options(**options)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, msgpack.exceptions.UnpackException):
        raise _Foreign from None
    return part


def _group(
    domain: str, source: str | None, entries: list[bytes], digests: list[bytes], hosts: list[Any]
) -> LinkGroup:
    _check(isinstance(domain, str), source is None or isinstance(source, str))
    _check(len(entries) == len(digests) == len(hosts), *(isinstance(one, bytes) for one in (*entries, *digests)))
    _check(*(len(digest) == _DIGEST_BYTES for digest in digests))
    _check(*(host is None or isinstance(host, int) for host in hosts))
    return LinkGroup(domain, source, entries, digests, hosts)


def _request(
    entry: bytes, digest: bytes, again: bool, source: str | None, domain: str | None, found: bool
) -> NewRequest:
    _check(isinstance(entry, bytes), isinstance(digest, bytes), isinstance(again, bool), isinstance(found, bool))
    _check(len(digest) == _DIGEST_BYTES)
    _check(*(one is None or isinstance(one, str) for one in (source, domain)), source or domain)
    return NewRequest(entry, digest, again, source, domain, found)


def _discover_options(
    *,
    high_water: int,
    overflow_maxlen: int,
    refuse_unknown: bool,
    budget: list[int] | None,
    most_outstanding: int | None,
    sitemaps: list[Any] | None,
) -> dict[str, Any]:
    numbers = (
        high_water,
        overflow_maxlen,
        *(budget or ()),
        *([] if most_outstanding is None else [most_outstanding]),
    )
    _check(*(isinstance(one, int) for one in numbers))
    _check(isinstance(refuse_unknown, bool))
    if sitemaps is not None:
        source, most = sitemaps
        _check(isinstance(source, str), isinstance(most, int))
    return {
        "high_water": high_water,
        "overflow_maxlen": overflow_maxlen,
        "refuse_unknown": refuse_unknown,
        "budget": budget and Budget(*budget),
        "most_outstanding": most_outstanding,
        "sitemaps": sitemaps and tuple(sitemaps),
    }


def _enqueue_options(*, high_water: int, refuse_unknown: bool) -> dict[str, Any]:
    _check(isinstance(high_water, int), isinstance(refuse_unknown, bool))
    return {"high_water": high_water, "refuse_unknown": refuse_unknown}


def _check(*are_right: Any) -> None:
    if not all(are_right):
        raise _Foreign


def _as_foreign(item: bytes) -> bytes:
    """Return an item that the shard which receives it makes a dead letter of."""
    number, _, _, *others = unpacked(item)
    marked: bytes = msgpack.packb([number, b"foreign", item, *others], use_bin_type=False)
    return marked


def unpacked(item: bytes) -> list[Any]:
    """Return what an item holds, as Lua reads it: of what may stand behind it nothing."""
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False)
    unpacker.feed(item)
    found: list[Any] = unpacker.unpack()
    return found


def _packed(body: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(body, use_bin_type=True, unicode_errors="surrogatepass")
    return packed
