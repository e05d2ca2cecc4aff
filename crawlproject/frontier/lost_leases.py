"""Returns what dead workers hold, where perhaps no worker is left to do it: in `scrapy monitor`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from crawlproject.loops import Loops
from crawlproject.politeness.retry import MOST_DELIVERIES
from crawlproject.state.client import State
from crawlproject.state.over_shards import shown
from crawlproject.state.scripts import Present

LOST_PAUSE_S = 0.1  # between two calls that take from dead workers, one each: other calls come first

logger = logging.getLogger(__name__)


class LostLeases:
    """Looks for workers whose heartbeat has lapsed, as often as a worker does.

    `states` returns the frontier of each spider whose workers are looked at, over the connection of `state`.
    """

    def __init__(self, state: State, states: Callable[[], Iterable[State]]) -> None:
        self.state = state
        self.states = states
        self._present: dict[tuple[str, int], Present] = {}
        self._loops = Loops(state)

    def start(self) -> None:
        """Start looking."""
        self._loops.start(self._look)

    async def stop(self) -> None:
        """Look no more."""
        await self._loops.stop()

    async def _look(self) -> None:
        config = self.state.config
        found = False
        for state in [shard for one in self.states() for shard in one.shards]:
            looked = state.keys.spider, state.number
            self._present[looked], lost = await state.scripts.reclaim(
                self._present.get(looked, Present()),
                timeout=config.heartbeat_timeout,
                max_deliveries=MOST_DELIVERIES,
            )
            for worker, returned, dead in lost:
                of = "" if state.count == 1 else f" of {shown(state)}"
                logger.warning(
                    "Worker %s is silent: %d leases%s returned, %d dead letters", worker, returned, of, dead
                )
            found = found or bool(lost)
        await asyncio.sleep(LOST_PAUSE_S if found else min(config.heartbeat_timeout / 6, 5.0))
