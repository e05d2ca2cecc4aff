"""What each site's robots.txt allows (RFC 9309): one copy for all workers in Redis, cached here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from scrapy.crawler import Crawler

from crawlproject.config import Config
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.robots_txt import Rules, freshness, robots_url
from crawlproject.robots.fetcher import Fetched, RobotsFetcher
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.texts import printable
from crawlproject.worker import Shutdown

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0  # how long a request waits for a robots.txt; the lock on fetching it lasts as long
_TRY_AGAIN_S = 0.25
_PREPARE_S = 0.03  # how long leases wait for what Redis knows; their slots can bear that
_KEPT_S = 90.0  # how long a worker uses its own copy at most; it is renewed after half of that
_MAX_BYTES = 64 * 1024 * 1024  # of memory for the copies
_PARSED_FACTOR = 34  # bytes of memory per byte of robots.txt, parsed (measured: 5 to 33)
_LARGE = 32 * 1024  # bytes; a larger robots.txt takes long to parse
_MAX_ORIGINS = 20_000
_MAX_LOOKUPS = 512  # at a time; further origins are looked up when their requests are parked
_MAX_CALLS = 16  # to Redis at a time: hundreds of new hosts must not take all of the client's connections
# How far ahead leases are granted, and a bit more. Where a host turns out to want more time between requests, its
# rules are published only after that: until then, leases with slots as close together as before are given back.
_LEASED_AHEAD_S = 0.3
_REFUSED_S = 3600.0  # until a robots.txt that led to a refused address is fetched again


class Verdict(NamedTuple):
    """Whether a URL may be fetched, and why not.

    `retry_in` (seconds) is set when that is unknown because the robots.txt could not be fetched.
    """

    allowed: bool
    reason: str = ""
    retry_in: float | None = None


class _Copy(NamedTuple):
    until: float  # on loop.time(), like `renew`
    renew: float  # when to look it up again, so that no request has to wait
    body: bytes
    rules: Rules | None  # None: everything is allowed
    refused: Verdict | None  # the verdict on every URL


class RobotsCache:
    """The robots.txt verdicts, for every request of every spider.

    `verdict` looks at memory only. `look_up` gets a missing robots.txt from the shared copy in Redis, or fetches
    it, one worker for all, with slots of the source that pays. Memory is bounded in bytes.
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
        self._lookups: dict[tuple[str, str], asyncio.Task[None]] = {}
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
        line = copy.rules and copy.rules.forbidding(url)
        return Verdict(False, f"line {line[0]}, {printable(line[1])}") if line else Verdict(allowed=True)

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
        unknown, origins = set(), set()
        for url, source in wanted:
            with suppress(ValueError):  # an odd URL has no robots.txt
                origins.add((robots_url(url), source))
        for origin, source in origins:
            copy = self._copies.get((origin, source))
            if (copy is None or copy.renew <= now) and len(self._lookups) < _MAX_LOOKUPS:
                task = self._start_lookup(origin, source)
                if copy is None or copy.until <= now + _PREPARE_S:
                    unknown.add(task)
        if unknown:
            await asyncio.wait(unknown, timeout=_PREPARE_S)

    async def look_up(self, url: str, source: str) -> Verdict | None:
        """Get the verdict on a URL of `source`; None when that takes too long, or the crawl closes."""
        if self.knows(url, source):
            return self.verdict(url, source)
        await asyncio.wait([self._start_lookup(robots_url(url), source)], timeout=_PATIENCE_S)
        return self.verdict(url, source)

    async def close(self) -> None:
        """End the look-ups under way."""
        tasks = list(self._lookups.values())
        while any(not task.done() for task in tasks):  # redis-py may swallow a cancellation, on Python 3.11
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)

    # Copies

    def _start_lookup(self, origin: str, source: str) -> asyncio.Task[None]:
        key = (origin, source)
        task = self._lookups.get(key)
        if task is None:
            task = self._lookups[key] = asyncio.create_task(self._look_up(origin, source))
            task.add_done_callback(lambda _: self._lookups.pop(key, None))
        return task

    async def _look_up(self, origin: str, source: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while not self.shutdown.has_begun:
            try:
                async with self._calls:
                    reply = await self.state.scripts.look_robots(self.state.worker_id, origin, source)
                if reply.slower:
                    await asyncio.sleep(_LEASED_AHEAD_S)
                if reply.what == "fetch":
                    if not await self._fetch_for_all(origin, source):
                        return
                    continue
                if reply.what != "wait":
                    await self._remember((origin, source), reply.what, reply.body, reply.seconds, reply.reason)
                    return
            except REDIS_TROUBLE as error:
                self.state.failed(error)
            if loop.time() > deadline:
                return
            await asyncio.sleep(_TRY_AGAIN_S)

    async def _remember(self, key: tuple[str, str], what: str, body: bytes, seconds: float, reason: str) -> None:
        rules = refused = None
        now = asyncio.get_running_loop().time()
        life = min(max(seconds, 1.0), _KEPT_S)
        renew = now + life / 2
        if what == "unreachable":
            # Kept no longer than the requests it turns away wait: then they come back and need a new verdict.
            life = max(seconds, _TRY_AGAIN_S)
            renew = now + life
            refused = Verdict(False, f"robots unreachable: {reason}", life)
        elif what == "refused":
            refused = Verdict(False, printable(body.decode(errors="replace")))
        elif what == "rules":
            before = self._copies.get(key)
            rules = before.rules if before and before.rules and before.body == body else await _parse(body)
            if refusal := refusal_for_delay(rules, self.config):
                refused = Verdict(False, refusal)
        before = self._copies.pop(key, None)
        self._copies[key] = _Copy(now + life, renew, body, rules, refused)
        self._size += (len(body) - (len(before.body) if before else 0)) * _PARSED_FACTOR
        while self._size > _MAX_BYTES or len(self._copies) > _MAX_ORIGINS:
            _, dropped = self._copies.popitem(last=False)
            self._size -= len(dropped.body) * _PARSED_FACTOR

    # Fetching

    async def _fetch_for_all(self, origin: str, source: str) -> bool:
        """Fetch a robots.txt and share the result; False if it could not be requested."""
        fetched = Fetched("")
        try:
            fetched = await self.fetcher.fetch(origin, source, self._calls)
        finally:
            await self._share(origin, source, fetched)
        return fetched.kind != ""

    async def _share(self, origin: str, source: str, fetched: Fetched) -> None:
        delay = 0.0
        if fetched.kind == "rules":
            delay = (await _parse(fetched.body)).delay or 0.0
            if delay > self.config.robots_delay_max:  # a skipped host must not slow down its source's other hosts
                delay = self.config.robots_delay_max if self.config.robots_delay_over == "clamp" else 0.0
        if fetched.kind == "unreachable":
            logger.debug("%s cannot be fetched: %s", origin, printable(fetched.reason), extra={"source": source})
        async with self._calls:
            slower = await self.state.scripts.keep_robots(
                self.state.worker_id,
                origin,
                source,
                kind=fetched.kind,
                body=fetched.body,
                ttl=_REFUSED_S if fetched.kind == "refused" else freshness(fetched.cache_control),
                delay=delay,
                reason=printable(fetched.reason),
                retry=self.config.retry_delay,
                retry_max=self.config.retry_delay_max,
            )
        if slower:
            await asyncio.sleep(_LEASED_AHEAD_S)


def refusal_for_delay(rules: Rules, config: Config) -> str | None:
    """Return why a host is skipped because of the delay that its robots.txt requests; None when it is not."""
    longest = config.robots_delay_max
    if config.robots_delay_over == "skip" and rules.delay is not None and rules.delay > longest:
        return f"it requests a delay of {rules.delay:g} s, CRAWL_ROBOTS_DELAY_MAX is {longest:g}"
    return None


async def _parse(body: bytes) -> Rules:
    """Parse a robots.txt; a large one takes half a second, and is parsed in a thread."""
    return Rules.parse(body) if len(body) <= _LARGE else await asyncio.to_thread(Rules.parse, body)
