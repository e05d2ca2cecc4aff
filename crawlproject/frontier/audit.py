"""The audit: what is derived from the queues and leases of a frontier is what there is."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crawlproject.frontier.contents import Counters, count_leases, read_counters
from crawlproject.state.client import State

logger = logging.getLogger(__name__)

_TICK_S = 1.0
_EVERY_S = 5.0  # between the beginnings of two sweeps, at least
_KEYS_A_TICK = 1000  # of these kinds; of those that needed mending more
_KEYS_A_CALL = 100  # a millisecond or two
_EXTENTS_A_CALL = 2  # keys, each perhaps of thousands of extents: 3 ms a thousand
_SCANS_A_TICK = 50  # of a thousand keys of any kind
_PAGE = 1000  # keys of any kind
_KINDS = {  # what keys of a spider begin with (state/keys.py) to what mend.lua calls them
    "queue": "queues",
    "delayed": "delayed",
    "overflow": "overflows",
    "extents": "extents",
    "revisits": "revisits",
    "leases": "workers",
    "in_hand": "workers",
}
_SOURCES = 3  # place of what was mended in the answers of mend.lua
_MENDED = (
    "sources with work were not due where they should be",
    "workers with leases or seeds were not known",
    "entries of other indexes were missing",
)
_LISTS = {"queues", "overflows", "extents"}


@dataclass(slots=True)
class _Frontier:
    """What a sweep has seen of the frontier of one spider, and mended there."""

    state: State
    before: Counters  # when the sweep began
    held: int  # leases of all workers, then
    sums: list[int] = field(default_factory=lambda: [0] * 6)  # of the answers of mend.lua


class Audit:
    """Sweeps over the keys of a shard while this worker leads it, and mends what others derive from them.

    Each queue that is not empty stands in the due index, each worker that holds anything among the workers, and
    the counters say what there is. So the crawl outlives the loss of any key that can be derived. The keys
    themselves are found by `SCAN`: a queue that no other key names is found, too. Two audits at once do no harm.

    A sweep of a small frontier takes one tick, that of a large one a second for each thousand keys; while there is
    much to mend it does not wait.
    """

    def __init__(self, state: State, leads: Callable[[], bool]) -> None:
        self.state = state
        self._leads = leads
        self._frontiers: dict[str, _Frontier] = {}  # by spider, while a sweep is on
        self._cursor = 0
        self._next_at = 0.0

    async def step(self) -> None:
        """Look at what is next, and wait for a tick."""
        now = asyncio.get_running_loop().time()
        if not self._leads():
            self._frontiers.clear()
        elif self._frontiers or now >= self._next_at:
            try:
                if not self._frontiers:
                    self._next_at = now + _EVERY_S
                    await self._begin()
                await self._go_on()
            except BaseException:
                self._frontiers.clear()  # what it has not seen would be missing from the sums
                raise
        await asyncio.sleep(_TICK_S)

    async def _begin(self) -> None:
        redis: Any = self.state.redis
        self._cursor = 0
        names = [name.decode() for name in await redis.zrange(self.state.keys.spiders, 0, -1)]
        for spider in {self.state.keys.spider, *names}:
            frontier = self.state.beside(spider)
            held = (await count_leases(frontier)).total()
            self._frontiers[spider] = _Frontier(frontier, await read_counters(frontier), held)

    async def _go_on(self) -> None:
        redis: Any = self.state.redis
        seen, start = 0, f"{self.state.keys.namespace}:".encode()
        pattern = re.sub(rb"([*?\[\]\\])", rb"\\\1", start) + b"*"
        for _ in range(_SCANS_A_TICK):
            self._cursor, keys = await redis.scan(self._cursor, match=pattern, count=_PAGE)
            found: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
            for key in keys:
                spider, kind, name = _parts_of(key.removeprefix(start))
                if kind and spider in self._frontiers:
                    found[spider].append((kind, name))
            for spider, names in found.items():
                for some in _calls(names):
                    seen += await self._mend(self._frontiers[spider], some)
            if self._cursor == 0:
                await self._end()
            if self._cursor == 0 or seen >= _KEYS_A_TICK:
                return

    async def _mend(self, frontier: _Frontier, names: Sequence[tuple[str, bytes]]) -> int:
        """Mend what hangs on these keys; return how many there were, 0 where there was much to mend."""
        by_kind: defaultdict[str, list[bytes]] = defaultdict(list)
        for kind, name in names:
            by_kind[kind].append(name)
        counts = await frontier.state.scripts.mend(by_kind)
        frontier.sums = [a + b for a, b in zip(frontier.sums, counts, strict=True)]
        return len(names) if 2 * counts[_SOURCES] < len(names) else 0

    async def _end(self) -> None:
        """Set the counters, and say what was mended."""
        for frontier in self._frontiers.values():
            seen, mended = frontier.sums[:_SOURCES], zip(frontier.sums[_SOURCES:], _MENDED, strict=True)
            wrong = await frontier.state.scripts.recount(frontier.before, frontier.held, seen)
            said = [f"{number} {what}" for number, what in mended if number]
            said += [f"{name} was {was} and is {now}" for name, was, now in wrong]
            if said:
                logger.warning(
                    "The audit has mended the frontier of %s, as somebody has deleted or changed keys: %s",
                    frontier.state.keys.spider,
                    "; ".join(said),
                )
        self._frontiers.clear()


def _calls(names: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Yield keys in calls, each of which holds Redis up for some milliseconds at most."""
    extents = [one for one in names if one[0] == "extents"]
    others = [one for one in names if one[0] != "extents"]
    for keys, most in ((others, _KEYS_A_CALL), (extents, _EXTENTS_A_CALL)):
        for first in range(0, len(keys), most):
            yield keys[first : first + most]


def _parts_of(key: bytes) -> tuple[str, str | None, bytes]:
    """Return the spider of a key, what mend.lua calls its kind, None if it takes none such, and the rest."""
    spider, _, rest = key.partition(b":")
    word, _, name = rest.partition(b":")
    kind = _KINDS.get(word.decode(errors="replace"))
    is_one = name[1:2] == b":" if kind in _LISTS else bool(name)  # priority:source, of a list
    return spider.decode(errors="replace"), kind if is_one else None, name
