"""Links found on pages: into the frontier of the page's spider, or of another one, never being a request."""

from __future__ import annotations

import asyncio
import logging
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import msgpack

from crawlproject.config import Config
from crawlproject.frontier.codec import VERSION, digest_of, name_in, via
from crawlproject.models import IDENTIFIER, PRIORITIES, SOURCE, VIA
from crawlproject.sources.domains import domain_of, host_of_url, url_fault
from crawlproject.state.calls import Budget, Finds, LinkGroup, Scripts, Sitemaps, Text
from crawlproject.state.client import REDIS_TROUBLE

logger = logging.getLogger(__name__)

LINKS_A_CALL = 512  # to one call: a millisecond
_TOGETHER_S = 0.1  # between calls that are not full
POOR, PLAIN, LISTED = 0, 1, 2  # priorities of links: unlikely to be worth it; others; those of sitemaps, revisits

_TABLE = 1 << 18  # hashes of 8 bytes: 2 MB a worker
_FORGET_S = 3600.0  # what was excluded, or purged, and is no longer seen may be found again after this long


@dataclass(frozen=True, slots=True)
class Link:
    """A link found on a page: its canonical URL, and what is to be stored of it.

    `identifier` and `url` are what it is known by, as with a seed; `source` is the name that its seed had, if any;
    `meta` has what the spider declares in `stored_meta`. `found_on` is the page that leads there, where the event
    of the link is to name it.
    """

    url: str
    priority: int = PLAIN
    depth: int = 0
    identifier: str = ""
    source: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    found_on: str = ""


_BECAME = {  # by the letters of discover.lua
    "a": "admitted",
    "k": "known",  # seen before
    "b": "over_budget",  # of their source
    "r": "refused",  # an unknown source where those are refused, or not to be stored
    "x": "excluded",
    "s": "left_out",  # beyond the bound of sitemaps
    "o": "forwarded",  # on their way to another shard
    "w": "without_room",  # beyond the bound of the overflows, or of the frontier
}


class NoCatalogue(Exception):
    """No leader knows whose these links are."""


class Discovered(Counter[str]):
    """How many links became what, by the names in `_BECAME`.

    `uncounted` has those of them that Redis has not counted: what this worker has decided without it, and what
    was left out. Without `is_new` nothing was admitted.
    """

    uncounted: Counter[str]
    is_new = True

    @property
    def are_all_stored(self) -> bool:
        """Whether none may be admitted later: over the budget, without room, or where it arrives."""
        return not any(map(self.get, ("over_budget", "without_room", "forwarded")))


class _Waiting(NamedTuple):
    """What waits for the next call: links of one page, their hashes, and what is to become of them."""

    finds: Finds
    hashes: list[int]
    letters: asyncio.Future[str | None]

    @property
    def size(self) -> int:
        return len(self.hashes) + 1


class Discovery:
    """Admits links to the frontier of one spider.

    The finds of several pages go to Redis in one call: ten times a second, or as soon as one is full. There is one
    call at a time; if Redis fails, all that wait fail with it.

    What this worker has lately seen admitted, or known, is not asked for again: a direct-mapped table of 64-bit
    hashes holds the latest link of each place. It is marked only after Redis has answered, and emptied when that
    fails, for then nobody knows what Redis still has.

    `budget` bounds those of each source; None: as the settings say. While `most_outstanding` requests are in the
    frontier none is admitted; None: each source may always have a few.
    """

    def __init__(
        self,
        scripts: Scripts,
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
        self._has_warned = False
        most = config.pages_budget_max
        self._budget = budget or (Budget(most=most) if most else None)
        self._waiting: deque[_Waiting] = deque()
        self._is_full = asyncio.Event()
        self._sent_at = -_TOGETHER_S
        self._sender: asyncio.Task[None] | None = None

    async def admit(
        self, links: Iterable[Link], *, text: Text | None = None, sitemaps: Sitemaps | None = None
    ) -> Discovered:
        """Admit links of one page, in parts, letting others have their turn; return what became of them.

        With a `text` of the page none is admitted where that was last seen under another address; it is noted
        where that was. `sitemaps`: they are sitemaps.

        Admitting the same links again does no harm: they are known then. So a page's lease is settled only after
        this.

        Raises:
            NoCatalogue: that has to wait for a leader that knows the catalogue.
            RedisError, OSError: Redis fails. Some of the links may be admitted.

        """
        found, uncounted, left = Discovered(), Counter[str](), iter(links)
        while (part := list(islice(left, LINKS_A_CALL))) or text is not None:
            known = Counter[str]()
            groups, hashes = self._unknown(part, known)
            if hashes or text is not None:
                letters = await self._in_turn(Finds(groups, text, sitemaps), hashes)
                if letters is None:
                    found.is_new = False
                    break
                found.update(_BECAME[letter] for letter in letters)
            else:
                await asyncio.sleep(0)
            uncounted += known
            text = None
        found.update(uncounted)
        found.uncounted = uncounted + Counter(left_out=found["left_out"])
        return found

    def _unknown(self, links: Iterable[Link], counts: Counter[str]) -> tuple[list[LinkGroup], list[int]]:
        """Return the links that Redis has to be asked about, and their hashes; count the others."""
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._forget(now)
        batch: dict[tuple[str | None, str], tuple[LinkGroup, list[int]]] = {}  # by source named and domain
        for link in links:
            number = hash((_known_as(link), link.url))
            if self._known[number & (_TABLE - 1)] == number:
                counts["known"] += 1
                continue
            if url_fault(link.url):
                counts["refused"] += 1
                continue
            host = host_of_url(link.url)
            domain = domain_of(host)
            if (name := (link.source, domain)) not in batch:
                batch[name] = LinkGroup(domain, link.source), []
            group, hashes = batch[name]
            group.entries.append(self.stored(link))
            group.digests.append(digest_of(_known_as(link), link.url))
            group.hosts.append("" if host in {domain, f"www.{domain}"} else zlib.crc32(host.encode()))
            hashes.append(number)
        return [group for group, _ in batch.values()], [one for _, hashes in batch.values() for one in hashes]

    def stored(self, link: Link) -> bytes:
        """Return the stored form of the request for a link; `codec.decode` reads it."""
        meta: dict[str, Any] = {**link.meta}
        if link.depth:
            meta["depth"] = link.depth
        if link.identifier:
            meta[IDENTIFIER] = link.identifier
        if link.source is not None:
            meta[SOURCE] = link.source
        if link.found_on:
            meta[VIA] = via(link.url, link.found_on)
        data = {"url": link.url, "meta": meta} if meta else {"url": link.url}
        body: bytes = self._pack(data)
        return bytes((VERSION, 0, min(max(link.priority, 0), PRIORITIES - 1))) + body

    async def _in_turn(self, finds: Finds, hashes: list[int]) -> str | None:
        """Have the next call take this along; return the letters of its links, None: its text is not new."""
        one = _Waiting(finds, hashes, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._note_size()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all())
        return await one.letters

    def _note_size(self) -> None:
        if sum(one.size for one in self._waiting) >= LINKS_A_CALL:
            self._is_full.set()
        else:
            self._is_full.clear()

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._sent_at + _TOGETHER_S):
                    await self._is_full.wait()
            batch, size = [self._waiting.popleft()], 0
            while self._waiting and (size := size + batch[-1].size) + self._waiting[0].size <= LINKS_A_CALL:
                batch.append(self._waiting.popleft())
            self._note_size()
            self._sent_at = loop.time()
            try:
                await self._send(batch)
            except Exception as error:
                if isinstance(error, REDIS_TROUBLE):  # those behind would each wait for a time-out of their own
                    batch += self._waiting
                    self._waiting.clear()
                for one in batch:
                    if not one.letters.done():
                        one.letters.set_exception(error)

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        try:
            replies = await self._scripts.discover(
                [one.finds for one in batch], budget=self._budget, most_outstanding=self._most_outstanding
            )
        except REDIS_TROUBLE:
            self._forget(asyncio.get_running_loop().time())
            raise
        if replies is None:
            raise NoCatalogue
        for one, letters in zip(batch, replies, strict=True):
            for letter, number in zip(letters or "", one.hashes, strict=letters is not None):
                if letter in "ako":
                    self._known[number & (_TABLE - 1)] = number
            self._warn(letters or "")
            if not one.letters.done():
                one.letters.set_result(letters)

    def _warn(self, letters: str) -> None:
        """Say, once, that there is no room for links."""
        if self._has_warned or "w" not in letters:
            return
        self._has_warned = True
        logger.warning(
            "Links are turned away (links_without_room): too many wait for their sources, another shard, or "
            "a spider that does not run. Set CRAWL_OVERFLOW_STORE, raise CRAWL_OVERFLOW_MAXLEN=%d, or run that",
            self._config.overflow_maxlen,
        )

    def _forget(self, now: float) -> None:
        self._known = array("q", bytes(8 * _TABLE))
        self._forget_at = now + _FORGET_S


def _known_as(link: Link) -> str:
    return link.identifier or name_in(link.meta)
