"""Counts a frontier anew by what is in its lists, where its counts cannot be believed any more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgpack
from redis.exceptions import ResponseError

from crawlproject.errors import FrontierInUse
from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.state.numbers import whole_number
from crawlproject.state.source_counts import read_counts

_PAGE = 1000  # keys that are looked at in one round trip
_SOURCES_A_CALL = 100
_ATTEMPTS = 3
_OF_LINKS = 3  # priorities: 0 to 2
_LINE = re.compile(rb"\d+ \d+( \d+)?")  # of the ledger
# To an extent (the Lua module `packs`).
_REFERENCE = re.compile(rb"([\w-]+/\d+-[0-9a-f]+):\d+:\d+:[0-9a-f]{40}:(\d+)")
_COUNTERS = ("outstanding", "overflow", "spilled")
# How much is under each of these prefixes, by their names in Keys.
_COUNTED = {
    "queue_of": "llen",
    "delayed_of": "zcard",
    "overflow_of": "llen",
    "leases_of": "hlen",
    "extents_of": "lrange",
}


@dataclass(slots=True)
class Count:
    """What the lists of a frontier hold."""

    queued: int = 0
    delayed: int = 0
    leased: int = 0
    sent: int = 0  # on their way to other shards
    waiting: int = 0
    spilled: int = 0
    packs: Counter[str] = field(default_factory=Counter)  # extents in each
    seen: int = 0  # in the last generation of the exact filter
    sources: set[str] = field(default_factory=set)  # with work
    waiting_links: dict[str, list[int]] = field(default_factory=dict)  # of the priorities 0, 1, 2, by source
    holders: list[str] = field(default_factory=list)  # workers with leases

    @property
    def outstanding(self) -> int:
        """Requests queued, delayed, leased, or on their way to another shard."""
        return self.queued + self.delayed + self.leased + self.sent

    @property
    def overflow(self) -> int:
        """Requests beyond their sources' shares, those in extents included."""
        return self.waiting + self.spilled


@dataclass(frozen=True, slots=True)
class Recount:
    """What was found: each count, as it was (None: junk) and as it is; and what was put right.

    `packs` that the wrong number of extents was counted for, lines of the `ledger` that were junk, `orphans`
    (workers with leases that nobody would have taken back), sources that would not have been `scheduled`.
    """

    counts: dict[str, tuple[int | None, int]]
    packs: int
    ledger: int
    orphans: int
    scheduled: int

    def __add__(self, other: Recount) -> Recount:
        """Return what was found in the shards of both."""
        counts = {name: self.counts.get(name, (0, 0)) for name in self.counts | other.counts}
        for name, (was, now) in other.counts.items():
            before, so_far = counts[name]
            counts[name] = (None if was is None or before is None else before + was, so_far + now)
        return Recount(
            counts,
            self.packs + other.packs,
            self.ledger + other.ledger,
            self.orphans + other.orphans,
            self.scheduled + other.scheduled,
        )


async def recount(state: State) -> Recount:
    """Count the frontier of the state's spider anew, and set its counts.

    Its workers must be stopped: no count of a million lists holds while they go on.

    Raises:
        FrontierInUse: they are not, or something else has changed it three times while it was counted.
        RedisError: a key that all sources share is of another type, among other things.

    """
    for _ in range(_ATTEMPTS):
        before = await _counters(state)
        filter_word, seen_before = await _seen_filter(state)
        count = await _counted(state, filter_word)
        packs = await _wrong_packs(state, count.packs)
        lines = await _lines_for_junk(state, count)
        orphans = await _orphans(state, count.holders)
        after = [count.outstanding, count.overflow, count.spilled]
        reply = await state.scripts.recount(
            timeout=state.config.heartbeat_timeout,
            before=before,
            after=[str(number) for number in after],
            packs=packs,
            seen=count.seen if filter_word else None,
            lines=lines,
            orphans=orphans,
        )
        if reply == "alive":
            raise FrontierInUse(
                f"workers of {state.keys.spider} are running, or were a moment ago: stop them, wait "
                f"CRAWL_HEARTBEAT_TIMEOUT ({state.config.heartbeat_timeout:g} s) for those that were killed, "
                "and run this again"
            )
        if reply == "done":
            was = {name: whole_number(value or b"0") for name, value in zip(_COUNTERS, before, strict=True)}
            counts = {name: (was[name], number) for name, number in zip(_COUNTERS, after, strict=True)}
            if filter_word:
                counts["seen"] = (seen_before, count.seen)
            scheduled = await _reschedule(state, sorted(count.sources))
            return Recount(counts, len(packs), len(lines), len(orphans), scheduled)
    raise FrontierInUse(
        f"the frontier of {state.keys.spider} is being changed (by scrapy purge, dead retry or a monitor): run "
        "this again when that has ended"
    )


async def _counters(state: State) -> list[bytes | None]:
    keys, redis = state.keys, _client(state)
    return list(await redis.mget(keys.outstanding, keys.overflow, keys.spilled))


async def _seen_filter(state: State) -> tuple[str, int | None]:
    """Return what the keys of the last exact generation begin with, "" if it is not counted; and its count."""
    try:
        words, number = await _client(state).hmget(state.keys.seen_meta, "exact", "exact_count")
    except ResponseError:  # of another type
        return "", None
    generations = (words or b"").split()
    if not generations or not generations[-1].isdigit():
        return "", None
    return f"{state.keys.seen_of}e{len(generations) - 1}:", whole_number(number)


async def _counted(state: State, filter_word: str) -> Count:
    keys, redis = state.keys, _client(state)
    count = Count(sent=await _sent(state))
    kinds = {getattr(keys, name): command for name, command in _COUNTED.items()}
    for prefix, command in (kinds | ({filter_word: "scard"} if filter_word else {})).items():
        async for page in _pages(state, prefix):
            async with redis.pipeline(transaction=False) as pipe:
                for key in page:
                    _ask(pipe, command, key)
                replies = await pipe.execute(raise_on_error=False)
            for key, reply in zip(page, replies, strict=True):
                _add(keys, count, prefix, key[len(prefix.encode()) :].decode(errors="replace"), reply)
    return count


async def _sent(state: State) -> int:
    """Count the requests in the outboxes to other shards (see the Lua module `shards`)."""
    found = 0
    for number in range(state.count if state.count > 1 else 0):
        at = 0
        with suppress(ResponseError):  # a key that holds something else
            while items := await _client(state).lrange(f"{state.keys.outbox_of}{number}", at, at + _PAGE - 1):
                found += sum(map(_is_request, items))
                at += len(items)
    return found


def _is_request(item: bytes) -> bool:
    try:
        return bool(msgpack.unpackb(item, raw=True)[1] == b"request")
    except (ValueError, TypeError, IndexError, KeyError, msgpack.exceptions.UnpackException):
        return False  # not written by us


def _ask(pipe: Any, command: str, key: bytes) -> None:
    """Ask how much a key holds, by the command that `_COUNTED` has for it."""
    getattr(pipe, command)(key, *((0, -1) if command == "lrange" else ()))


def _add(keys: Keys, count: Count, prefix: str, rest: str, reply: Any) -> None:
    """Count what a key holds; one of another type holds nothing of ours."""
    if prefix == keys.delayed_of:
        count.delayed += _number(reply)
        count.sources.add(rest)
    elif prefix == keys.leases_of:
        count.leased += _number(reply)
        if _number(reply):
            count.holders.append(rest)
    elif prefix in {keys.queue_of, keys.overflow_of, keys.extents_of}:
        priority, _, source = rest.partition(":")
        if not (priority.isdigit() and int(priority) < PRIORITIES and source):
            return
        count.sources.add(source)
        number = _number(reply)
        if prefix == keys.extents_of:
            found = [_REFERENCE.fullmatch(one) for one in reply] if isinstance(reply, list) else []
            count.packs.update(one[1].decode() for one in found if one)
            number = sum(int(one[2]) for one in found if one)
            count.spilled += number
        elif prefix == keys.queue_of:
            count.queued += number
        else:
            count.waiting += number
        if int(priority) < _OF_LINKS:
            count.waiting_links.setdefault(source, [0, 0, 0])[int(priority)] += number
    else:
        count.seen += _number(reply)


async def _wrong_packs(state: State, extents: Counter[str]) -> dict[str, int]:
    """Return the packs whose number of extents is not what was noted, with the right one."""
    noted = {name.decode(errors="replace"): value async for name, value in _scanned(state, state.keys.packs)}
    wrong = {name: number for name, number in extents.items() if whole_number(noted.get(name)) != number}
    return wrong | {name: 0 for name in noted if name not in extents}


async def _lines_for_junk(state: State, count: Count) -> dict[str, str]:
    """Return a line for each source whose own in the ledger is junk, by links that wait, and pages fetched."""
    junk = [
        name.decode(errors="surrogateescape")
        async for name, value in _scanned(state, state.keys.ledger)
        if not _LINE.fullmatch(value)
    ]
    lines = {}
    for first in range(0, len(junk), _PAGE):
        sources = junk[first : first + _PAGE]
        pages = (await read_counts(state, sources, ["pages"]))["pages"]
        for source, fetched in zip(sources, pages, strict=True):
            poor, *others = count.waiting_links.get(source, [0, 0, 0])
            lines[source] = f"{poor + sum(others) + fetched} {poor}"
    return lines


async def _orphans(state: State, holders: list[str]) -> list[str]:
    known = {name.decode(errors="replace") for name in await _client(state).zrange(state.keys.workers, 0, -1)}
    return [holder for holder in holders if holder not in known]


async def _reschedule(state: State, sources: list[str]) -> int:
    """Have sources be due by the work that they have; return how many were not, or not where they should be."""
    found = 0
    for first in range(0, len(sources), _SOURCES_A_CALL):
        found += await state.scripts.reschedule(sources[first : first + _SOURCES_A_CALL])
    return found


async def _pages(state: State, prefix: str) -> AsyncIterator[list[bytes]]:
    """Yield the keys that begin with `prefix`, each once."""
    pattern = _escaped(prefix) + "*"
    found: set[bytes] = set()
    page: list[bytes] = []
    async for key in _client(state).scan_iter(match=pattern, count=_PAGE):
        if key in found:
            continue
        found.add(key)
        page.append(key)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _escaped(text: str) -> str:
    """Return a text as it stands in the pattern of SCAN."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


async def _scanned(state: State, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the fields of a hash; none of a key of another type."""
    with suppress(ResponseError):
        async for name, value in _client(state).hscan_iter(key, count=_PAGE):
            yield name, value


def _client(state: State) -> Any:
    return state.redis


def _number(reply: Any) -> int:
    return reply if isinstance(reply, int) else 0
