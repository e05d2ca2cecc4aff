"""Processes that feed seeds tell Redis so: what they have left is no part of the crawl yet."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from contextlib import suppress
from typing import Any

from crawlproject.state.client import REDIS_TROUBLE, State

_EVERY_S = 2.0
_KEPT_S = 60  # the last report; after ten seconds nobody believes it (collect.lua)


class Feeder:
    """Reports every two seconds that this process is feeding, and how much is `left`, from `start` to `stop`.

    `left` is about how many seeds it has yet to put into the list, None where that is not known. What Redis does
    not take is lost.
    """

    def __init__(self, state: State) -> None:
        self.left: int | None = None
        self._shard = state.shards[0]
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def start(self) -> None:
        """Begin to report."""
        self._reports = asyncio.create_task(self._report())

    async def stop(self) -> None:
        """Report no more."""
        while not self._reports.done():  # on Python 3.11 the client can swallow a cancellation
            self._reports.cancel()
            await asyncio.wait((self._reports,), timeout=0.1)
        ended: Any = self._shard.redis.hdel(self._shard.keys.feeders, self._name)
        with suppress(*REDIS_TROUBLE, TimeoutError):
            await asyncio.wait_for(ended, 1.0)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            with suppress(*REDIS_TROUBLE):
                await self._note()

    async def _note(self) -> None:
        seconds, _ = await self._shard.redis.time()
        async with self._shard.redis.pipeline(transaction=False) as pipe:
            pipe.hset(self._shard.keys.feeders, self._name, f"{seconds}:{'' if self.left is None else self.left}")
            pipe.expire(self._shard.keys.feeders, _KEPT_S)
            await pipe.execute()
