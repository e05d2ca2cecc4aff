"""Has a worker move to a shard that no worker serves, from one that has several."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterable

from scrapy.crawler import Crawler

from crawlproject.extensions import Extension
from crawlproject.frontier.seeds import has_starts
from crawlproject.frontier.worker import MOVES_TO, worker_of
from crawlproject.runtime import Loops
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, shown

logger = logging.getLogger(__name__)

_LOOK_S = 15.0  # between two looks
_PATIENCE_S = 60.0  # that a shard has no worker, before one moves there


class UnservedShards(Extension):
    """Looks for shards without a worker, in the first of several workers of a shard.

    When it finds one it ends the crawl of this process. `scrapy crawl` then executes itself again, to serve that
    shard; it has this extension where CRAWL_SHARD does not say what a worker serves.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._unserved: dict[int, float] = {}  # shard -> since when

    def spider_opened(self) -> None:
        """Begin to look, unless the spider has start requests, which would go out again with each move."""
        self._worker = worker_of(self.crawler)
        self._loops = Loops(self._worker.state)
        if not has_starts(self._worker.spider):
            self._loops.start(self._look)

    async def spider_closed(self) -> None:
        """Look no more."""
        await self._loops.stop()

    async def _look(self) -> None:
        await asyncio.sleep(_LOOK_S * random.uniform(0.8, 1.2))
        await self.look()

    async def look(self) -> None:
        """Look once; end the crawl of this process if it is to serve another shard."""
        state = self._worker.state
        here = await state.workers()
        if self._worker.shutdown.has_begun or len(here) < 2 or min(here) != state.worker_id:
            self._unserved.clear()
            return
        served, _ = await ask_shards([shard for shard in state.shards if shard is not state], State.workers)
        for shard in self._long_unserved(shard for shard, workers in served.items() if not workers):
            if await shard.join(0):  # those of other shards see that it is served
                logger.warning("No worker serves %s: this one moves there", shown(shard))
                os.environ[MOVES_TO] = str(shard.number)
                self._closing = asyncio.create_task(self.crawler.engine.close_spider_async(reason="moved"))
                return

    def _long_unserved(self, shards: Iterable[State]) -> list[State]:
        now, found = asyncio.get_running_loop().time(), list(shards)
        self._unserved = {shard.number: self._unserved.get(shard.number, now) for shard in found}
        return [shard for shard in found if now - self._unserved[shard.number] >= _PATIENCE_S]
