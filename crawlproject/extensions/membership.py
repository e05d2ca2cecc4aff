"""Keeps this worker a member of the crawl: it beats, notices that it stood still, and stands for election."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from crawlproject.errors import ConfigError
from crawlproject.extensions import Extension
from crawlproject.frontier.worker import worker_of
from crawlproject.leader import Leader
from crawlproject.politeness.outcomes import MOST_DELIVERIES
from crawlproject.runtime import PAUSES_EVERY_S, Loops

logger = logging.getLogger(__name__)

_LOST_PAUSE_S = 0.1  # between two calls that take from dead workers, one each: other calls come first


class Membership(Extension):
    """Tells the others that this worker is alive, takes what dead ones held back to the queues, and may lead."""

    def spider_opened(self) -> None:
        """Beat, and stand for election, from now on."""
        self.worker = worker_of(self.crawler)
        self._differed = False
        self._loops = Loops(self.worker.state)
        self._loops.start(self._look_for_pauses, self._beat)
        self.leader = Leader(self.config, self.worker.state)
        self.leader.start()

    async def spider_closed(self) -> None:
        """Stop, and let another worker lead at once."""
        await self._loops.stop()
        await self.leader.stop()

    async def _look_for_pauses(self) -> None:
        await asyncio.sleep(PAUSES_EVERY_S)
        self.worker.pauses.look()

    async def _beat(self) -> None:
        """Tell that this worker is alive; learn which others are not, and whether this one had lapsed."""
        await asyncio.sleep(min(self.config.heartbeat_timeout / 6, 5.0))
        leases, state = self.worker.lease_queue, self.worker.state
        beat = partial(
            state.scripts.heartbeat,
            state.worker_id,
            timeout=self.config.heartbeat_timeout,
            max_deliveries=MOST_DELIVERIES,
        )
        reply = await beat(join=False)
        if not reply.alive and self.worker.shutdown.has_begun:
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
        lost = reply.lost
        while lost:
            for worker, returned, dead in lost:
                logger.warning("Worker %s is silent: %d leases returned, %d dead letters", worker, returned, dead)
            await asyncio.sleep(_LOST_PAUSE_S)
            lost = (await beat(join=False)).lost

    async def _may_join(self) -> bool:
        """Tell whether the crawl has as many shards as this worker knows; else stop this worker.

        It may have been begun anew, with others, while this worker was silent.
        """
        try:
            await self.worker.state.check_layout()
        except ConfigError as error:
            logger.error("This worker stops: %s", error)
            self._stopping = asyncio.create_task(self.crawler.engine.close_spider_async(reason="shards"))
            return False
        return True
