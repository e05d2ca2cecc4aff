"""Links found on pages: into the frontier of the page's spider, or of another one, never being a request."""

from __future__ import annotations

import asyncio
import logging
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from crawlproject.config import Config
from crawlproject.frontier.codec import VERSION, digest_of, name_in, via
from crawlproject.models import IDENTIFIER, PRIORITIES, SOURCE, VIA
from crawlproject.sources.domains import domain_of, host_of_url, url_fault
from crawlproject.state.calls import Budget, LinkGroup, Scripts
from crawlproject.state.client import REDIS_TROUBLE

logger = logging.getLogger(__name__)

LINKS_A_CALL = 512  # to one call: a millisecond
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

_Batch = dict[tuple[str | None, str], tuple[LinkGroup, list[int]]]  # by source named and domain; with their hashes


class Discovered(Counter[str]):
    """How many links became what, by the names in `_BECAME`.

    `uncounted` has those of them that Redis has not counted: what this worker has decided without it, and what
    was left out.
    """

    uncounted: Counter[str]


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

    async def admit(self, links: Iterable[Link], *, sitemaps: tuple[str, int] | None = None) -> Discovered | None:
        """Admit links; return what became of them, None if that has to wait for a leader that knows the catalogue.

        `sitemaps`: they are sitemaps that this source leads to, of which it may have so many.

        Admitting the same links again does no harm: they are known then. So a page's lease is settled only after
        this.

        Raises:
            RedisError, OSError: Redis fails. Some of the links may be admitted.

        """
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._forget(now)
        found, uncounted = Discovered(), Counter[str]()
        for batch in self._batches(links, uncounted):
            if not await self._send(batch, now, found, sitemaps):
                return None
        found.update(uncounted)
        found.uncounted = uncounted + Counter(left_out=found["left_out"])
        return found

    def _batches(self, links: Iterable[Link], uncounted: Counter[str]) -> Iterable[_Batch]:
        """Yield the links that Redis has to be asked about, at most `LINKS_A_CALL` at once; count the others."""
        batch, size = _Batch(), 0
        for link in links:
            number = hash((_known_as(link), link.url))
            if self._known[number & (_TABLE - 1)] == number:
                uncounted["known"] += 1
                continue
            if url_fault(link.url):
                uncounted["refused"] += 1
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
            size += 1
            if size == LINKS_A_CALL:
                yield batch
                batch, size = _Batch(), 0
        if size:
            yield batch

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

    async def _send(
        self,
        batch: _Batch,
        now: float,
        found: Discovered,
        sitemaps: tuple[str, int] | None,
    ) -> bool:
        try:
            letters = await self._scripts.discover(
                [group for group, _ in batch.values()],
                budget=self._budget,
                most_outstanding=self._most_outstanding,
                sitemaps=sitemaps,
            )
        except REDIS_TROUBLE:
            self._forget(now)
            raise
        if letters is None:
            return False
        numbers = [number for _, hashes in batch.values() for number in hashes]
        for letter, number in zip(letters, numbers, strict=True):
            found[_BECAME[letter]] += 1
            if letter in "ako":
                self._known[number & (_TABLE - 1)] = number
        self._warn(letters)
        return True

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
