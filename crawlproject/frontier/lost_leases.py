"""Returns what dead workers hold, where perhaps no worker is left to do it: in `scrapy monitor`."""

from __future__ import annotations

import asyncio
import logging

from crawlproject.loops import Loops
from crawlproject.state.client import State
from crawlproject.state.scripts import Present

logger = logging.getLogger(__name__)


class LostLeases:
    """Looks for workers whose heartbeat has lapsed, as often as a worker does."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._present = Present()
        self._loops = Loops(state)

    def start(self) -> None:
        """Start looking."""
        self._loops.start(self._look)

    async def stop(self) -> None:
        """Look no more."""
        await self._loops.stop()

    async def _look(self) -> None:
        config = self.state.config
        self._present, lost = await self.state.scripts.reclaim(
            self._present, timeout=config.heartbeat_timeout, max_deliveries=config.max_deliveries
        )
        for worker, returned, dead in lost:
            logger.warning("Worker %s is silent: %d leases returned, %d dead letters", worker, returned, dead)
        await asyncio.sleep(min(config.heartbeat_timeout / 6, 5.0))
