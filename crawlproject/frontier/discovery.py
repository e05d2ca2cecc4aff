"""Links found on pages: into the frontier of the page's spider, or of another one, never being a request."""

from __future__ import annotations

import asyncio
import logging
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from crawlproject.config import Config
from crawlproject.frontier.codec import VERSION
from crawlproject.frontier.dupefilter import digest_of, name_in
from crawlproject.models import IDENTIFIER, PRIORITIES, SOURCE
from crawlproject.sources.domains import domain_of, host_of_url, url_fault
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.found_elsewhere import send_links
from crawlproject.state.over_shards import not_answering, shown
from crawlproject.state.scripts import Budget, DiscoverReply, LinkGroup, Scripts
from crawlproject.state.shards import shard_of

logger = logging.getLogger(__name__)

LINKS_A_CALL = 512  # to one call: a millisecond
POOR, FOUND, LISTED = 0, 1, 2  # priorities of links: unlikely to be worth it; others; those of sitemaps, revisits

_TABLE = 1 << 18  # hashes of 8 bytes: 2 MB a worker
_FORGET_S = 3600.0  # what was excluded, or purged, and is no longer seen may be found again after this long
_CLOSED_S = 60.0  # links of a source that takes no more are dropped for so long, at most
_MOST_CLOSED = 50_000
_OPEN, _NO_POOR, _CLOSED = 0, 1, 2
_UNKNOWN = (_OPEN, 0.0, "")
_MOST_HOPS = 3  # of links from shard to shard
_TURN_S = 10.0  # that a call waits for its turn to ask a shard that is away
_ASK_EVERY_S = 1.0  # between two calls that ask whether a shard is back


@dataclass(frozen=True, slots=True)
class Link:
    """A link found on a page: its canonical URL, and what is to be stored of it.

    `identifier` and `url` are what it is known by, as with a seed; `source` is the name that its seed had, if any;
    `meta` has what the spider declares in `stored_meta`.
    """

    url: str
    priority: int = FOUND
    depth: int = 0
    identifier: str = ""
    source: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Discovered:
    """What became of links: new; seen before; beyond the budget of their source; beyond the bound of the
    overflows, or of the frontier (`without_room`); of an unknown source where those are refused, or not to be
    stored; excluded; beyond the bound of sitemaps (`left_out`); on their way to a shard that is away (`sent`).

    `uncounted` has those of them that Redis has not counted: what this worker has decided without it, and what
    was left out.
    """

    admitted: int = 0
    known: int = 0
    over_budget: int = 0
    without_room: int = 0
    refused: int = 0
    excluded: int = 0
    left_out: int = 0
    sent: int = 0
    uncounted: Mapping[str, int] = field(default_factory=dict, compare=False)


_FIELDS = {
    "a": "admitted",
    "k": "known",
    "b": "over_budget",
    "h": "over_budget",
    "f": "without_room",
    "d": "without_room",
    "q": "without_room",
    "m": "without_room",
    "r": "refused",
    "x": "excluded",
    "s": "left_out",
    "o": "sent",
    "w": "without_room",
}
_OF_ALL = "fdqmrxw"  # what holds for all links of a group
_SENT, _NO_WAY = "o", "w"  # into an outbox, as their shard is away; it has no room


class _Batch(NamedTuple):
    """Links of one call, by the source that they name and their domain; the hashes they are known by here."""

    groups: dict[tuple[str | None, str], LinkGroup]
    hashes: dict[tuple[str | None, str], list[int]]


class Discovery:
    """Admits links to the frontier of one spider.

    What this worker has lately seen admitted, or known, is not asked for again: a direct-mapped table of 64-bit
    hashes holds the latest link of each place. It is marked only after Redis has answered, and emptied when that
    fails, for then nobody knows what Redis still has.

    `budget` bounds those of each source; None: as the settings say. While `most_outstanding` requests are in the
    frontier none is admitted; None: each source may always have a few.
    """

    def __init__(
        self,
        scripts: Scripts | ShardsScripts,
        config: Config,
        *,
        most_outstanding: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._scripts = scripts
        self._config = config
        self._most_outstanding = most_outstanding
        self._pack = msgpack.Packer().pack
        self._known = array("q", bytes(8 * _TABLE))
        self._forget_at = 0.0
        # With the next good page of the source it may take some more.
        self._closed_s = min(_CLOSED_S, config.pages_delay)
        # Its state, until when, and what becomes of its links
        self._closed: dict[tuple[str | None, str], tuple[int, float, str]] = {}
        self._warned: set[str] = set()
        is_stored = config.overflow_store is not None
        self._most_apart = config.overflow_store_maxlen if is_stored else config.overflow_maxlen
        most = config.pages_budget_max
        self._budget = budget or (Budget(most=most) if most else None)

    async def admit(
        self, links: Iterable[Link], *, sitemaps: tuple[str, int] | None = None, page_in: int | None = None
    ) -> Discovered | None:
        """Admit links; return what became of them, None if that has to wait for a leader that knows the catalogue.

        `sitemaps`: they are sitemaps that this source leads to, of which it may have so many. `page_in`: the shard
        that their page is in, where those wait whose shard is away; None: they are not admitted before that is
        back.

        Admitting the same links again does no harm: they are known then. So a page's lease is settled only after
        this.

        Raises:
            RedisError, OSError: Redis fails. Some of the links may be admitted.

        """
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._forget(now)
        counts: Counter[str] = Counter()
        uncounted: Counter[str] = Counter()
        for batch in self._batches(links, now, uncounted):
            if not await self._send(batch, now, counts, uncounted, sitemaps, page_in):
                return None
        if counts["left_out"]:
            uncounted["left_out"] = counts.pop("left_out")
        return Discovered(**counts + uncounted, uncounted=uncounted)

    def _batches(self, links: Iterable[Link], now: float, uncounted: Counter[str]) -> Iterable[_Batch]:
        """Yield the links that Redis has to be asked about, at most `LINKS_A_CALL` at once; count the others."""
        batch, size = _Batch({}, {}), 0
        for link in links:
            number = hash((_known_as(link), link.url))
            if self._known[number & (_TABLE - 1)] == number:
                uncounted["known"] += 1
                continue
            if url_fault(link.url):
                uncounted["refused"] += 1
                continue
            host = host_of_url(link.url)
            group = (link.source, domain_of(host))
            state, _, becomes = self._state_of(group, now)
            if state == _CLOSED or (state == _NO_POOR and link.priority == POOR):
                uncounted[becomes] += 1
                continue
            self._add(batch, group, link, host, number)
            size += 1
            if size == LINKS_A_CALL:
                yield batch
                batch, size = _Batch({}, {}), 0
        if size:
            yield batch

    def _add(self, batch: _Batch, group: tuple[str | None, str], link: Link, host: str, number: int) -> None:
        found = batch.groups.get(group)
        if found is None:
            source, domain = group
            found = batch.groups[group] = LinkGroup(domain, source)
            batch.hashes[group] = []
        found.entries.append(self.stored(link))
        found.digests.append(digest_of(_known_as(link), link.url))
        domain = found.domain
        found.hosts.append(None if host in {domain, f"www.{domain}"} else zlib.crc32(host.encode()))
        batch.hashes[group].append(number)

    def stored(self, link: Link) -> bytes:
        """Return the stored form of the request for a link; `codec.decode` reads it."""
        meta: dict[str, Any] = {**link.meta}
        if link.depth:
            meta["depth"] = link.depth
        if link.identifier:
            meta[IDENTIFIER] = link.identifier
        if link.source is not None:
            meta[SOURCE] = link.source
        data = {"url": link.url, "meta": meta} if meta else {"url": link.url}
        body: bytes = self._pack(data)
        return bytes((VERSION, 0, min(max(link.priority, 0), PRIORITIES - 1))) + body

    async def _send(
        self,
        batch: _Batch,
        now: float,
        counts: Counter[str],
        uncounted: Counter[str],
        sitemaps: tuple[str, int] | None,
        page_in: int | None,
    ) -> bool:
        groups = list(batch.groups.values())
        config = self._config
        shards = {"page_in": page_in} if isinstance(self._scripts, ShardsScripts) else {}
        try:
            reply = await self._scripts.discover(
                groups,
                high_water=config.high_water,
                overflow_maxlen=self._most_apart,
                overflow_stored=config.overflow_store is not None,
                refuse_unknown=config.unknown_sources == "refuse",
                budget=self._budget,
                most_outstanding=self._most_outstanding,
                sitemaps=sitemaps,
                **shards,
            )
        except REDIS_TROUBLE:
            self._forget(now)
            raise
        if reply is None:
            return False
        numbers = [number for hashes in batch.hashes.values() for number in hashes]
        for letter, number in zip(reply.letters, numbers, strict=True):
            (uncounted if letter == _NO_WAY else counts)[_FIELDS[letter]] += 1
            if letter in "ak" or letter == _SENT:
                self._known[number & (_TABLE - 1)] = number
        self._close(batch, reply, now)
        self._warn(reply.letters)
        return True

    def _close(self, batch: _Batch, reply: DiscoverReply, now: float) -> None:
        """Note which sources take no more links for now."""
        last = -1
        for (group, hashes), state in zip(batch.hashes.items(), reply.closed, strict=True):
            last += len(hashes)
            if state != _OPEN:
                letter = reply.letters[last]
                becomes = _FIELDS[letter] if letter in _OF_ALL else "over_budget"
                self._closed[group] = (state, now + self._closed_s, becomes)
        if len(self._closed) > _MOST_CLOSED:
            self._closed = {group: found for group, found in self._closed.items() if found[1] > now}
            if len(self._closed) > _MOST_CLOSED:
                self._closed.clear()

    def _warn(self, letters: str) -> None:
        """Say, once, why there is no room for links."""
        is_stored, is_own = self._config.overflow_store is not None, self._most_outstanding is None
        links = "Links" if is_own else "Links for another spider"
        name = "CRAWL_OVERFLOW_STORE_MAXLEN" if is_stored else "CRAWL_OVERFLOW_MAXLEN"
        remedy = "Raise that" if is_stored else "Set CRAWL_OVERFLOW_STORE, or raise that"
        if not is_own:
            remedy += ", or run that spider, as by scrapy crawl images"
        for letter in {"f", "d", "q", "m"} & set(letters) - self._warned:
            self._warned.add(letter)
            if letter == "m":
                why = (
                    f"its frontier holds {self._most_outstanding} requests, the most that it may while links are "
                    "added. Run that spider, as by scrapy crawl images"
                )
            elif letter == "f":
                why = (
                    f"beyond the windows of their sources {self._most_apart} requests wait"
                    f"{'' if is_stored else ' in Redis'}, as many as {name} allows. {remedy}"
                )
            elif letter == "q":
                why = (
                    f"some sources have what one may have of {name}={self._most_apart}, a quarter of what others "
                    f"leave. {remedy}"
                )
            else:
                why = (
                    f"CRAWL_OVERFLOW_STORE is down, and {2 * self._config.overflow_tail} requests wait for it, "
                    "twice CRAWL_OVERFLOW_TAIL"
                )
            logger.warning("%s are turned away (links_without_room): %s", links, why)

    def _state_of(self, group: tuple[str | None, str], now: float) -> tuple[int, float, str]:
        found = self._closed.get(group, _UNKNOWN)
        return found if now < found[1] else _UNKNOWN

    def _forget(self, now: float) -> None:
        self._known = array("q", bytes(8 * _TABLE))
        self._forget_at = now + _FORGET_S


def scripts_of(state: State) -> Scripts | ShardsScripts:
    """Return what admits links to a frontier."""
    return state.scripts if state.count == 1 else ShardsScripts(state)


class ShardsScripts:
    """Several shards: each link is admitted to the one that its source is in.

    What is for a shard that is away waits in an outbox of the shard of its page (state/found_elsewhere.py), so the
    page itself need not. One call each `_ASK_EVERY_S` asks whether it is back. As many may wait as in overflows in
    Redis; links beyond are turned away.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._turns = [asyncio.Lock() for _ in state.shards]
        self._away: dict[int, float] = {}  # shards that have failed when they were last asked -> when to ask again
        self._told: set[int] = set()  # of them, those of which the log tells
        self._homes: dict[tuple[str | None, str], int] = {}

    async def discover(
        self, groups: Sequence[LinkGroup], *, page_in: int | None = None, **options: Any
    ) -> DiscoverReply | None:
        """Admit links of a page in the shard `page_in`; None: those whose shard is away wait for it.

        What was admitted before a shard fails is known when they come again.

        Raises:
            REDIS_TROUBLE: a shard fails, the first time, or the one of the page does.

        """
        letters, closed, left = [""] * len(groups), [0] * len(groups), dict(enumerate(groups))
        for _ in range(_MOST_HOPS):
            for number in {self._home_of(group) for group in left.values()}:
                places = [place for place, group in left.items() if self._home_of(group) == number]
                some = [left.pop(place) for place in places]
                reply = await self._ask(number, some, options, page_in)
                if reply is None:
                    return None
                at = 0
                for place, group, state in zip(places, some, reply.closed, strict=True):
                    letters[place], closed[place] = reply.letters[at : at + len(group.entries)], state
                    at += len(group.entries)
                    if state > _CLOSED:
                        self._note_home(group, state - _CLOSED - 1)
                        left[place] = group
            if not left:
                return DiscoverReply("".join(letters), closed)
        return None  # the catalogues of the shards differ for the moment

    async def _ask(
        self, number: int, groups: Sequence[LinkGroup], options: Mapping[str, Any], page_in: int | None
    ) -> DiscoverReply | None:
        """Ask a shard; if it is away, when no other call does, or else leave it a message where the page is."""
        shard, turn = self._state.shards[number], self._turns[number]
        if number not in self._away:
            return await self._discover(shard, groups, options)
        if page_in is None or page_in == number:
            return await self._ask_in_turn(shard, groups, options)
        if asyncio.get_running_loop().time() >= self._away[number] and not turn.locked():
            async with turn:
                with suppress(*REDIS_TROUBLE):
                    return await self._discover(shard, groups, options)
        return await self._send(shard, groups, options, self._state.shards[page_in])

    async def _ask_in_turn(
        self, shard: State, groups: Sequence[LinkGroup], options: Mapping[str, Any]
    ) -> DiscoverReply | None:
        """Ask a shard that is away for links of its own pages, when no other call does.

        Raises:
            redis.ConnectionError: the turn of this call has not come in time.
            REDIS_TROUBLE: the shard fails.

        """
        turn = self._turns[shard.number]
        try:
            await asyncio.wait_for(turn.acquire(), _TURN_S)
        except TimeoutError:
            raise not_answering(shard, "many pages wait for it") from None
        try:
            return await self._discover(shard, groups, options)
        finally:
            turn.release()

    async def _discover(
        self, shard: State, groups: Sequence[LinkGroup], options: Mapping[str, Any]
    ) -> DiscoverReply | None:
        try:
            reply: DiscoverReply | None = await shard.scripts.discover(groups, **options)
        except REDIS_TROUBLE:
            self._away[shard.number] = asyncio.get_running_loop().time() + _ASK_EVERY_S
            raise
        self._away.pop(shard.number, None)
        self._told.discard(shard.number)
        return reply

    async def _send(
        self, shard: State, groups: Sequence[LinkGroup], options: Mapping[str, Any], here: State
    ) -> DiscoverReply:
        """Have links wait in an outbox until their shard is back."""
        most = here.bounds.overflow_maxlen
        is_sent = await send_links(here, shard.number, groups, options, most=most)
        if not is_sent and shard.number not in self._told:
            self._told.add(shard.number)
            logger.warning(
                "Links to sources of %s, which does not answer, are turned away (links_without_room): in %s %d "
                "links wait for such shards, its part of CRAWL_OVERFLOW_MAXLEN",
                shown(shard),
                shown(here),
                most,
            )
        letter, state = (_SENT, _OPEN) if is_sent else (_NO_WAY, _CLOSED)
        return DiscoverReply(letter * sum(len(group.entries) for group in groups), [state] * len(groups))

    def _home_of(self, group: LinkGroup) -> int:
        key = (group.source, group.domain)
        return self._homes.get(key, shard_of(group.source or group.domain, self._state.count))

    def _note_home(self, group: LinkGroup, number: int) -> None:
        if len(self._homes) >= _MOST_CLOSED:
            self._homes.clear()
        self._homes[group.source, group.domain] = number


def _known_as(link: Link) -> str:
    return link.identifier or name_in(link.meta)
