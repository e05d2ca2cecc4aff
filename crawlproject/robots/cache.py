"""What each site's robots.txt allows (RFC 9309): one copy for all workers in Redis, cached here."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from scrapy.crawler import Crawler

from crawlproject.config import Config
from crawlproject.net.resolver import Resolver
from crawlproject.pages.sitemaps import sitemap_lines, sitemaps_of_robots
from crawlproject.politeness.outcomes import LONGEST_DELAY_S
from crawlproject.politeness.robots_txt import MOST_DELAY_S, Rules, Verdict, freshness, judge, robots_url
from crawlproject.robots.fetcher import Fetched, RobotsFetcher
from crawlproject.runtime import Shutdown
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import RobotsReply
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.texts import printable
from crawlproject.threads import end

logger = logging.getLogger(__name__)

_SOON_S = 2.0  # in which a robots.txt is expected, if nothing holds it up
_PUT_OFF_S = 0.5  # how long a request waits for one in that time
_PATIENCE_S = 60.0  # how long a request without a lease waits
_LOOK_S = 0.25  # between two looks at what another fetches; more each time,
_LOOK_MAX_S = 5.0  # up to this
_VISIT_MAX_S = 30.0  # the same between two tries of a request to another source, which many may want to make
_LONGEST_PUT_OFF_S = 60.0
_WANTED_S = 120.0  # a robots.txt that no request has needed for this long is not looked up again
_TRY_AGAIN_S = 0.25
_PREPARE_S = 0.03  # how long leases wait for what Redis knows; their slots can bear that
_KEPT_S = 90.0  # how long a worker uses its own copy at most; it is renewed after half of that
_MAX_BYTES = 64 * 1024 * 1024  # of memory for the copies
_PARSED_FACTOR = 34  # bytes of memory per byte of robots.txt, parsed (measured: 5 to 33)
_LARGE = 4 * 1024  # bytes; a larger robots.txt may take more than 2 ms to parse
_MAX_ORIGINS = 20_000
_MAX_PENDING = 20_000  # that are being looked up
_MAX_CALLS = 16  # to Redis at a time: hundreds of new hosts must not take all of the client's connections
# How far ahead leases are granted, and a bit more. Where a host turns out to want more time between requests, its
# rules are published only after that: until then, leases with slots as close together as before are given back.
_LEASED_AHEAD_S = 0.3
_REFUSED_S = 3600.0  # until a robots.txt that led to a refused address is fetched again


class _Copy(NamedTuple):
    until: float  # on loop.time(), like `renew`
    renew: float  # when to look it up again, so that no request has to wait
    body: bytes
    rules: Rules | None  # None: everything is allowed
    refused: Verdict | None  # the verdict on every URL


class _Pending:
    """A robots.txt that is missing, or due for renewal; `task` looks it up until it is known, or given up.

    `token` is the name by which its look-ups lock what they fetch.
    """

    task: asyncio.Task[None]

    def __init__(self, token: str) -> None:
        self.since = self.wanted = asyncio.get_running_loop().time()
        self.token = token
        self.looks = 0  # that found nothing
        self.again = 0.0  # when it looks again


class RobotsCache:
    """The robots.txt verdicts, for every request of every spider.

    `verdict` looks at memory only. A look-up gets a missing robots.txt from the shared copy in Redis, or fetches
    it, one worker for all, with slots of the source that pays. Where there is no slot yet, or another one fetches
    it, it looks again later, and keeps nothing meanwhile. Memory is bounded in bytes.
    """

    def __init__(
        self, crawler: Crawler, config: Config, state: State, resolver: Resolver, shutdown: Shutdown
    ) -> None:
        self.config = config
        self.state = state
        self.shutdown = shutdown
        self.fetcher = RobotsFetcher(crawler, state, resolver, shutdown)
        self._copies: OrderedDict[tuple[str, str], _Copy] = OrderedDict()
        self._size = 0
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._tokens = itertools.count()
        self._calls = asyncio.Semaphore(_MAX_CALLS)

    @property
    def under_way(self) -> int:
        """How many robots.txt are being downloaded: requests in flight that no lease counts."""
        return self.fetcher.under_way

    # Verdicts

    def knows(self, url: str, source: str) -> bool:
        """Tell whether the verdict on a URL of `source` is known."""
        return self._copy(url, source) is not None

    def verdict(self, url: str, source: str) -> Verdict | None:
        """Return the verdict on a URL of `source`, None when it must be looked up."""
        copy = self._copy(url, source)
        if copy is None or copy.refused is not None:
            return copy and copy.refused
        return judge(copy.rules, url) if copy.rules else Verdict(allowed=True)

    def _copy(self, url: str, source: str) -> _Copy | None:
        try:
            key = (robots_url(url), source)
        except ValueError as error:
            return _Copy(math.inf, math.inf, b"", None, Verdict(False, f"no robots.txt: {error}"))
        copy = self._copies.get(key)
        if copy is None or copy.until <= asyncio.get_running_loop().time():
            return None
        self._copies.move_to_end(key)
        return copy

    async def prepare(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Start look-ups for the (URL, source) pairs; wait at most `_PREPARE_S` for verdicts not yet known."""
        now = asyncio.get_running_loop().time()
        keys, unknown = set(), set()
        for url, source in wanted:
            with suppress(ValueError):  # an odd URL has no robots.txt
                keys.add((robots_url(url), source))
        for key in keys:
            copy = self._copies.get(key)
            has_room = key in self._pending or len(self._pending) < _MAX_PENDING
            if has_room and (copy is None or copy.renew <= now):
                task = self._want(key).task
                if copy is None or copy.until <= now + _PREPARE_S:
                    unknown.add(task)
        if unknown:
            await asyncio.wait(unknown, timeout=_PREPARE_S)

    async def look_up(self, url: str, source: str, patience: float = _PATIENCE_S) -> Verdict | None:
        """Get the verdict on a URL of `source`; None when that takes too long (s), or the crawl closes."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + patience
        while not self.knows(url, source) and not self.shutdown.has_begun:
            left = give_up_at - loop.time()
            if left <= 0:
                break
            await asyncio.wait([self._want((robots_url(url), source)).task], timeout=min(left, _TRY_AGAIN_S))
        return self.verdict(url, source)

    async def sitemaps(self, url: str, source: str) -> list[str]:
        """Return the sitemaps that the robots.txt for a URL of `source` names; none if it cannot be had soon."""
        await self.look_up(url, source, _SOON_S)
        copy = self._copy(url, source)
        return [] if copy is None or copy.rules is None else sitemaps_of_robots(copy.body, robots_url(url))

    def put_off(self, url: str, source: str) -> float:
        """Have the robots.txt for a URL of `source` looked up; return how long (s) a request waits for it."""
        key = (robots_url(url), source)
        if key not in self._pending and len(self._pending) >= _MAX_PENDING:
            return _LONGEST_PUT_OFF_S
        pending, now = self._want(key), asyncio.get_running_loop().time()
        missing_for, again_in = now - pending.since, max(pending.again - now, 0.0)
        if missing_for < _SOON_S and again_in < _SOON_S:
            return _PUT_OFF_S
        return min(max(again_in + 1.0, missing_for / 2), _LONGEST_PUT_OFF_S)

    async def close(self) -> None:
        """End the look-ups."""
        await end(*(pending.task for pending in self._pending.values()))

    # Look-ups

    def _want(self, key: tuple[str, str]) -> _Pending:
        """Have a robots.txt looked up."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(f"{self.state.worker_id} {next(self._tokens)}")
            pending.task = asyncio.create_task(self._look_up(key, pending))
        pending.wanted = asyncio.get_running_loop().time()
        return pending

    async def _look_up(self, key: tuple[str, str], pending: _Pending) -> None:
        """Look until it is known, or no request needs it any more."""
        loop = asyncio.get_running_loop()
        try:
            while not self.shutdown.has_begun and loop.time() - pending.wanted <= _WANTED_S:
                try:
                    wait = await self._look(key, pending)
                except REDIS_TROUBLE as error:
                    self.state.failed(error)
                    wait = _TRY_AGAIN_S
                except Exception:
                    logger.exception("Bug in looking up %s", key[0])
                    wait = _LOOK_MAX_S
                if wait is None:
                    return
                pending.again = loop.time() + wait
                await asyncio.sleep(wait)
        finally:
            del self._pending[key]

    async def _look(self, key: tuple[str, str], pending: _Pending) -> float | None:
        """Get a robots.txt, and what it redirects to; return None, or after how many seconds to look again."""
        origin, source = key
        while not self.shutdown.has_begun:
            async with self._calls:
                shard = self.state.shard_for(source)
                reply = await shard.scripts.look_robots(
                    pending.token, origin, source, fetches=self.fetcher.has_room
                )
            if reply.slower:
                await asyncio.sleep(_LEASED_AHEAD_S)
            fetched = None
            if reply.fetch:
                fetched = await self._fetch_for_all(reply.fetch, origin, source, pending.token)
                if fetched.kind:
                    continue
            if reply.what != "wait":  # also one that has run out, until there is another (RFC 9309, 2.4)
                await self._remember(key, reply)
            if fetched is not None:
                return self._wait_for_slot(reply.fetch, origin, pending, fetched.wait)
            if reply.what != "wait":
                return None
            pending.looks += 1
            return min(_LOOK_S * 1.5 ** min(pending.looks - 1, 10), _LOOK_MAX_S)
        return None

    def _wait_for_slot(self, url: str, origin: str, pending: _Pending, wait: float) -> float:
        """Return after how many seconds to try again what could not be requested: `wait`, or later.

        A source's own robots.txt is tried just before its slot may be leased for images, which cannot go without
        it. Of the many that may be sent to another source, few can go at a time: their tries are spread out. An
        operator may resume a held source, or raise its rate: none waits for long without a look.
        """
        wait = min(wait, _LOOK_MAX_S)
        if domain_of_url(url) == domain_of_url(origin):
            return max(wait, _TRY_AGAIN_S)
        pending.looks += 1
        return wait + min(_LOOK_S * 1.5 ** min(pending.looks, 15), _VISIT_MAX_S) * random.uniform(1, 2)

    # Copies

    async def _remember(self, key: tuple[str, str], reply: RobotsReply) -> None:
        rules = refused = None
        now = asyncio.get_running_loop().time()
        life = min(max(reply.seconds, 1.0), _KEPT_S)
        renew = now + life / 2
        body, before = reply.body, self._copies.get(key)
        if reply.what == "unreachable":
            # Kept no longer than the requests it turns away wait: then they come back and need a new verdict.
            life = max(reply.seconds, _TRY_AGAIN_S)
            renew = now + life
            refused = Verdict(False, f"robots unreachable: {reply.reason}", life)
        elif reply.what == "refused":
            refused = Verdict(False, printable(body.decode(errors="replace")))
        elif reply.what == "rules":
            rules = before.rules if before and before.rules and before.body == body else await _parse(body)
        before = self._copies.pop(key, None)
        self._copies[key] = _Copy(now + life, renew, body, rules, refused)
        self._size += (len(body) - (len(before.body) if before else 0)) * _PARSED_FACTOR
        while self._size > _MAX_BYTES or len(self._copies) > _MAX_ORIGINS:
            _, dropped = self._copies.popitem(last=False)
            self._size -= len(dropped.body) * _PARSED_FACTOR

    # Fetching

    async def _fetch_for_all(self, url: str, origin: str, source: str, token: str) -> Fetched:
        """Request `url`, to which the robots.txt at `origin` leads, and share the result."""
        fetched = Fetched("")
        try:
            fetched = await self.fetcher.fetch(url, origin, source, self._calls)
        finally:
            await self._share(token, url, source, fetched)
        return fetched

    async def _share(self, token: str, url: str, source: str, fetched: Fetched) -> None:
        kind, body, delay = fetched.kind, fetched.body, 0.0
        if kind == "rules":
            rules = await _parse(body)
            kind, body = what_is_kept(rules, body)
            delay = min(rules.delay or 0.0, MOST_DELAY_S)
        if kind == "unreachable":
            logger.debug("%s cannot be fetched: %s", url, printable(fetched.reason), extra={"source": source})
        requested = fetched.requested
        async with self._calls:
            shard = self.state.shard_for(source)  # not that of this process in `scrapy shell`, which has no leases
            if requested is not None and (payer := self.state.shard_for(requested.source)) is not shard:
                await payer.scripts.note_request(requested)  # a redirect has led to a source of another shard
                requested = None
            kept = await shard.scripts.keep_robots(
                token,
                url,
                kind=kind,
                body=body,
                ttl=_REFUSED_S if kind == "refused" else freshness(fetched.cache_control),
                delay=delay,
                reason=printable(fetched.reason),
                retry=self.config.retry_delay,
                retry_max=LONGEST_DELAY_S,
                source=source,
                requested=requested,
            )
        if not kept:
            logger.debug("%s took too long, another fetches it", url, extra={"source": source})


def what_is_kept(rules: Rules, body: bytes) -> tuple[str, bytes]:
    """Return the kind of a robots.txt, and the text that is kept of it."""
    if not rules.is_empty:
        return "rules", body
    named = sitemap_lines(body)  # by far the most frequent kind: no more of its text need be kept
    return "rules" if named else "none", named


async def _parse(body: bytes) -> Rules:
    """Parse a robots.txt; a large one takes up to half a second, and is parsed in a thread."""
    return Rules.parse(body) if len(body) <= _LARGE else await asyncio.to_thread(Rules.parse, body)
