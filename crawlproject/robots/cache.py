"""What each site's robots.txt allows (RFC 9309): fetched once for all workers, remembered here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response

from crawlproject.config import Config
from crawlproject.errors import NoNameServer, SlotMissed
from crawlproject.models import SLOT, SOURCE
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.robots_txt import MAX_BYTES, Rules, freshness, robots_url
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.texts import LONGEST_URL, printable
from crawlproject.worker import Shutdown

logger = logging.getLogger(__name__)

MOST_REDIRECTS = 5  # RFC 9309, 2.3.1.2: at least that many are followed

_PATIENCE = 60.0  # seconds that a request waits for a robots.txt; the lock on fetching it lasts as long
_ASK_AGAIN = 0.25  # seconds
_A_MOMENT = 0.03  # seconds that leases wait for what Redis knows; their slots bear that
_REMEMBERED = 90.0  # seconds that a worker goes by its own memory, at most; it renews it after half of that
_MOST_BYTES = 64 * 1024 * 1024  # of memory for what is remembered
_PARSED = 40  # bytes of memory that a byte of robots.txt takes, parsed (measured: 18 to 46)
_LARGE = 32 * 1024  # bytes of a robots.txt that takes long to read
_MOST_ORIGINS = 20_000
_MOST_LOOKED_FOR = 512  # at a time; those beyond are when they are parked
_CALLS = 16  # to Redis at a time: hundreds of new hosts must not take all of the client's connections
# Seconds that leases are granted ahead, and a bit. Where a host turns out to want more time between requests, its
# rules become known only after that: what is waiting for slots as close as before comes back for others.
_AHEAD = 0.3
_LATE = 0.05  # seconds that the slot of a robots.txt may be used late
_REFUSED = 3600.0  # seconds until a robots.txt that led to a refused address is asked for again
_LARGEST = 50_000_000  # bytes that one may have (RFC 9309, 2.5), whatever DOWNLOAD_MAXSIZE is; few are read


class Verdict(NamedTuple):
    """Whether a URL may be fetched, and why not.

    `retry_in` (seconds) is set when that is not known: the robots.txt could not be had.
    """

    allowed: bool
    reason: str = ""
    retry_in: float | None = None


class _Copy(NamedTuple):
    until: float  # loop.time(), as `renew`: when to look it up anew, so that it is never missed
    renew: float
    body: bytes
    rules: Rules | None  # None: everything is allowed
    refused: Verdict | None  # for every URL


class _Fetched(NamedTuple):
    kind: str
    body: bytes = b""
    cache_control: bytes | None = None
    reason: str = ""


class RobotsCache:
    """The verdicts of robots.txt, for every request of every spider.

    `verdict` looks at memory only. What it does not know `look_up` finds out: from the shared copy in Redis, or
    by fetching it, one worker for all, with slots of the source that pays. Memory is bounded in bytes.
    """

    def __init__(
        self, crawler: Crawler, config: Config, state: State, resolver: Resolver, shutdown: Shutdown
    ) -> None:
        self.crawler = crawler
        self.config = config
        self.state = state
        self.resolver = resolver
        self.shutdown = shutdown
        self._copies: OrderedDict[tuple[str, str], _Copy] = OrderedDict()
        self._size = 0
        self._looking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._received: dict[Request, int] = {}
        self._talk = asyncio.Semaphore(_CALLS)

    # Verdicts

    def knows(self, url: str, source: str) -> bool:
        """Tell whether the verdict on a URL of `source` is known."""
        return self._copy(url, source) is not None

    def verdict(self, url: str, source: str) -> Verdict | None:
        """Return what is known of a URL of `source`, None when it must be looked up."""
        copy = self._copy(url, source)
        if copy is None or copy.refused is not None:
            return copy and copy.refused
        if copy.rules is None or copy.rules.allows(url):
            return Verdict(allowed=True)
        if len(copy.body) > _LARGE:  # to find the line in it takes too long here
            return Verdict(False, "disallowed; scrapy explain names the line")
        rule = copy.rules.rule_for(url)
        return Verdict(False, f"line {rule[0]}, {printable(rule[1])}" if rule else "disallowed")

    def _copy(self, url: str, source: str) -> _Copy | None:
        try:
            key = (robots_url(url), source)
        except ValueError as error:
            return _Copy(math.inf, math.inf, b"", None, Verdict(False, f"there is none: {error}"))
        copy = self._copies.get(key)
        if copy is None or copy.until <= asyncio.get_running_loop().time():
            return None
        self._copies.move_to_end(key)
        return copy

    async def prepare(self, wanted: Iterable[tuple[str, str]]) -> None:
        """See to it that the verdicts of URLs of sources are known soon; wait a moment for those that are not."""
        now = asyncio.get_running_loop().time()
        unknown, origins = set(), set()
        for url, source in wanted:
            with suppress(ValueError):  # an odd URL has none
                origins.add((robots_url(url), source))
        for origin, source in origins:
            copy = self._copies.get((origin, source))
            if (copy is None or copy.renew <= now) and len(self._looking) < _MOST_LOOKED_FOR:
                task = self._look(origin, source)
                if copy is None or copy.until <= now + _A_MOMENT:
                    unknown.add(task)
        if unknown:
            await asyncio.wait(unknown, timeout=_A_MOMENT)

    async def look_up(self, url: str, source: str) -> Verdict | None:
        """Find out about a URL of `source`; None when that takes too long, or the crawl closes."""
        if self.knows(url, source):
            return self.verdict(url, source)
        await asyncio.wait([self._look(robots_url(url), source)], timeout=_PATIENCE)
        return self.verdict(url, source)

    async def close(self) -> None:
        """End the look-ups under way."""
        tasks = list(self._looking.values())
        while any(not task.done() for task in tasks):  # redis-py may swallow one, on Python 3.11
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)

    # Copies

    def _look(self, origin: str, source: str) -> asyncio.Task[None]:
        key = (origin, source)
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(self._find(origin, source))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
        return task

    async def _find(self, origin: str, source: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while not self.shutdown.has_begun:
            try:
                async with self._talk:
                    reply = await self.state.scripts.look_robots(self.state.worker, origin, source)
                if reply.slower:
                    await asyncio.sleep(_AHEAD)
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
            await asyncio.sleep(_ASK_AGAIN)

    async def _remember(self, key: tuple[str, str], what: str, body: bytes, seconds: float, reason: str) -> None:
        rules = refused = None
        now = asyncio.get_running_loop().time()
        life = min(max(seconds, 1.0), _REMEMBERED)
        renew = now + life / 2
        if what == "unreachable":
            # No longer than those wait that it turns away: they come back to ask again.
            life = max(seconds, _ASK_AGAIN)
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
        self._size += (len(body) - (len(before.body) if before else 0)) * _PARSED
        while self._size > _MOST_BYTES or len(self._copies) > _MOST_ORIGINS:
            _, dropped = self._copies.popitem(last=False)
            self._size -= len(dropped.body) * _PARSED

    # Fetching

    async def _fetch_for_all(self, origin: str, source: str) -> bool:
        """Fetch a robots.txt and share what came of it; False if it could not be asked for."""
        fetched = _Fetched("")
        try:
            fetched = await self._fetch(origin, source)
        finally:
            await self._share(origin, source, fetched)
        return fetched.kind != ""

    async def _share(self, origin: str, source: str, fetched: _Fetched) -> None:
        delay = 0.0
        if fetched.kind == "rules":
            delay = (await _parse(fetched.body)).delay or 0.0
            if delay > self.config.robots_delay_max:  # a host that is skipped slows its source's others not down
                delay = self.config.robots_delay_max if self.config.robots_delay_over == "clamp" else 0.0
        if fetched.kind == "unreachable":
            logger.debug("%s cannot be had: %s", origin, printable(fetched.reason), extra={"source": source})
        async with self._talk:
            slower = await self.state.scripts.keep_robots(
                self.state.worker,
                origin,
                source,
                kind=fetched.kind,
                body=fetched.body,
                ttl=_REFUSED if fetched.kind == "refused" else freshness(fetched.cache_control),
                delay=delay,
                reason=printable(fetched.reason),
                retry=self.config.retry_delay,
                retry_max=self.config.retry_delay_max,
            )
        if slower:
            await asyncio.sleep(_AHEAD)

    async def _fetch(self, origin: str, source: str) -> _Fetched:
        url = origin
        for _ in range(MOST_REDIRECTS + 1):
            try:
                if kept := await self._kept_from(url):
                    return kept
                payer = source if domain_of_url(url) == domain_of_url(origin) else None
                response = await self._get(url, payer, origin)
                if response is None:
                    return _Fetched("")
                location = response.headers.get("Location")
                if not (300 <= response.status < 400 and location):
                    return _outcome(response)
                url = _redirected(url, location)
            except IgnoreRequest as error:
                # Without a name server nothing was asked.
                return _Fetched("" if isinstance(error, NoNameServer) else "unreachable", reason=str(error))
            except Exception as error:  # whatever a download can meet, and a Location can be
                return _Fetched("unreachable", reason=f"{type(error).__name__}: {error}".strip())
        return _Fetched("none")  # 2.3.1.2: too many redirects, it may be taken for unavailable

    async def _kept_from(self, url: str) -> _Fetched | None:
        """Return what keeps us from asking for `url` at all, before a slot is spent on it."""
        await self.resolver.look_up(url)
        if not self.resolver.knows(url):
            return _Fetched("")
        if refused := self.resolver.refusal(url):
            return _Fetched("refused", f"robots.txt at an address that is refused: {refused}".encode())
        failure = self.resolver.failure(url)
        return _Fetched("unreachable", reason=failure) if failure else None

    async def _get(self, url: str, source: str | None, origin: str) -> Response | None:
        """Ask for `url` when its source has a slot; waiting for one takes up no place of the downloader.

        None when there is none to be had, or the crawl closes. A slot may be far ahead, where a source is asked
        once in minutes; the lock on `origin` lasts beyond it.
        """
        loop = asyncio.get_running_loop()
        domain = None if source is not None else domain_of_url(url)
        deadline = loop.time() + _PATIENCE
        while not self.shutdown.has_begun:
            slot = None
            if self._has_room():
                async with self._talk:
                    slot = await self._acquire(source, domain, origin)
            if slot is None:
                if loop.time() > deadline:
                    return None
                await asyncio.sleep(_ASK_AGAIN)
                continue
            ahead = slot - loop.time()
            await asyncio.sleep(max(ahead, 0))
            if loop.time() - slot > _LATE or not self._has_room():
                continue
            if ahead > _AHEAD and not await self._confirmed(source, domain):
                continue
            meta: dict[str, Any] = {
                SLOT: slot,
                SOURCE: source if domain is None else domain,  # for the log
                "dont_redirect": True,
                "handle_httpstatus_all": True,
                "download_timeout": min(self.config.download_timeout, _PATIENCE / 2),
                "download_maxsize": _LARGEST,
            }
            # Not compressed: what is read of it can then be counted.
            request = Request(url, meta=meta, headers={"Accept-Encoding": "identity"}, dont_filter=True)
            self.crawler.stats.inc_value("robots/requests")
            try:
                return await self._download(request)
            except SlotMissed:
                self.crawler.stats.inc_value("robots/slots_missed")
        return None

    async def _acquire(self, source: str | None, domain: str | None, origin: str) -> float | None:
        try:
            slot = await self.state.scripts.acquire(source=source, domain=domain)
            if slot is not None:
                lasts = max(slot - asyncio.get_running_loop().time(), 0) + _PATIENCE
                await self.state.redis.pexpire(self.state.keys.robots_fetch_of + origin, int(lasts * 1000))
        except REDIS_TROUBLE as error:  # not the fault of the site
            self.state.failed(error)
            return None
        return slot

    async def _confirmed(self, source: str | None, domain: str | None) -> bool:
        """Tell whether a slot that was far ahead may still be used."""
        try:
            return await self.state.scripts.confirm(source=source, domain=domain)
        except REDIS_TROUBLE as error:
            self.state.failed(error)
            return False

    def _has_room(self) -> bool:
        """Tell whether another download may begin: hosts that hang leave half of the downloader to others."""
        return len(self._received) < max(self.crawler.settings.getint("CONCURRENT_REQUESTS") // 2, 1)

    async def _download(self, request: Request) -> Response | None:
        """Return the response; None when the crawl closes, which shall not wait for it."""
        connect: Callable[..., None] = self.crawler.signals.connect
        if not self._received:
            connect(self._bytes_received, signal=signals.bytes_received)
        self._received[request] = 0
        download = asyncio.ensure_future(self.crawler.engine.download_async(request))
        download.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, also at the end
        try:
            while not download.done():
                await asyncio.wait([download], timeout=_ASK_AGAIN)
                if self.shutdown.has_begun:
                    return None
            response: Response = download.result()
            return response
        finally:
            download.cancel()
            del self._received[request]
            if not self._received:
                self.crawler.signals.disconnect(self._bytes_received, signal=signals.bytes_received)

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Stop at what is read of a robots.txt at most (RFC 9309, 2.5)."""
        if request not in self._received:
            return
        self._received[request] += len(data)
        if self._received[request] > MAX_BYTES:
            raise StopDownload(fail=False)


def refusal_for_delay(rules: Rules, config: Config) -> str | None:
    """Return why a host is skipped because of the delay that its robots.txt asks for; None when it is not."""
    longest = config.robots_delay_max
    if config.robots_delay_over == "skip" and rules.delay is not None and rules.delay > longest:
        return f"it asks for {rules.delay:g} s between requests, CRAWL_ROBOTS_DELAY_MAX is {longest:g}"
    return None


async def _parse(body: bytes) -> Rules:
    """Parse a robots.txt; a large one takes half a second, which nobody else shall wait."""
    return Rules.parse(body) if len(body) <= _LARGE else await asyncio.to_thread(Rules.parse, body)


def _redirected(url: str, location: bytes) -> str:
    """Return where a redirect leads.

    Raises:
        ValueError: to no URL, or to one that is too long to be looked at.

    """
    if len(location) > LONGEST_URL:
        raise ValueError(f"it redirects to a url of {len(location)} characters")
    return urljoin(url, location.decode("latin-1").strip())


def _outcome(response: Response) -> _Fetched:
    """Return what the last response of a fetch means (RFC 9309, 2.3.1)."""
    cache_control = response.headers.get("Cache-Control")
    if 200 <= response.status < 300:
        return _Fetched("rules", response.body[: MAX_BYTES + 1], cache_control)
    if 300 <= response.status < 500:
        return _Fetched("none", cache_control=cache_control)
    return _Fetched("unreachable", reason=f"status {response.status}")
