"""Keeps this worker a member of the crawl: it beats, stands for election, and may move to another shard."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterable
from functools import partial

from scrapy.crawler import Crawler

from crawlproject.errors import ConfigError
from crawlproject.extensions import Extension
from crawlproject.frontier.scheduler import MOVES_TO
from crawlproject.frontier.seeds import has_starts
from crawlproject.leader import Leader
from crawlproject.politeness.outcomes import MOST_DELIVERIES
from crawlproject.runtime import PAUSES_EVERY_S
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, shown

logger = logging.getLogger(__name__)

_LOST_PAUSE_S = 0.1  # between two calls that take from dead workers, one each: other calls come first
_LOOK_S = 15.0  # between two looks
_PATIENCE_S = 60.0  # that a shard has no worker, before one moves there


class Membership(Extension):
    """Tells the others that this worker is alive, takes what dead ones held back to the queues, and may lead."""

    def begin(self) -> None:
        """Beat, and stand for election, from now on."""
        self._differed = False
        self.loops.start(self._look_for_pauses, self._beat)
        self.leader = Leader(self.config, self.scheduler.state)
        self.leader.start()

    async def spider_closed(self) -> None:
        """Stop, and let another worker lead at once."""
        await super().spider_closed()
        await self.leader.stop()

    async def _look_for_pauses(self) -> None:
        await asyncio.sleep(PAUSES_EVERY_S)
        self.scheduler.pauses.look()

    async def _beat(self) -> None:
        """Tell that this worker is alive; learn which others are not, and whether this one had lapsed."""
        await asyncio.sleep(min(self.config.heartbeat_timeout / 6, 5.0))
        leases, state = self.scheduler.queue, self.scheduler.state
        beat = partial(
            state.scripts.heartbeat,
            state.worker_id,
            timeout=self.config.heartbeat_timeout,
            max_deliveries=MOST_DELIVERIES,
        )
        reply = await beat(join=False)
        if not reply.alive and self.scheduler.shutdown.has_begun:
            return  # it has left
        if not reply.alive:
            logger.warning("This worker was silent for too long: its leases have been returned to the queues")
            leases.forget_waiting()
            if not await self._may_join():
                return
            reply = await beat(join=True)
        # Leases on their way, to here or to Redis, make the numbers differ for a moment: look twice.
        differs = reply.leases > len(leases.leases)
        if differs and self._differed:
            await leases.reconcile()
        self._differed = differs
        while reply.lost is not None:
            logger.warning("Worker %s is silent: %d leases returned, %d dead letters", *reply.lost)
            await asyncio.sleep(_LOST_PAUSE_S)
            reply = await beat(join=False)

    async def _may_join(self) -> bool:
        """Tell whether the crawl has as many shards as this worker knows; else stop this worker.

        It may have been begun anew, with others, while this worker was silent.
        """
        try:
            await self.scheduler.state.check_layout()
        except ConfigError as error:
            logger.error("This worker stops: %s", error)
            self._stopping = asyncio.create_task(self.crawler.engine.close_spider_async(reason="shards"))
            return False
        return True


class UnservedShards(Extension):
    """Looks for shards without a worker, in the first of several workers of a shard.

    When it finds one it ends the crawl of this process. `scrapy crawl` then executes itself again, to serve that
    shard; it has this extension where CRAWL_SHARD does not say what a worker serves.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._unserved: dict[int, float] = {}  # shard -> since when

    def begin(self) -> None:
        """Begin to look, unless the spider has start requests, which would go out again with each move."""
        if not has_starts(self.scheduler.spider):
            self.loops.start(self._look)

    async def _look(self) -> None:
        await asyncio.sleep(_LOOK_S * random.uniform(0.8, 1.2))
        await self.look()

    async def look(self) -> None:
        """Look once; end the crawl of this process if it is to serve another shard."""
        state = self.scheduler.state
        here = await state.workers()
        if self.scheduler.shutdown.has_begun or len(here) < 2 or min(here) != state.worker_id:
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
