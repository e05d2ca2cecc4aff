"""Processes that feed seeds tell Redis so: what they have left is no part of the crawl yet."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket

from crawlproject.state import functions
from crawlproject.state.client import REDIS_TROUBLE, State

_EVERY_S = 2.0
_PATIENCE_S = 1.0  # with Redis at the end: without its word it is forgotten ten seconds later


class Feeder:
    """Reports every two seconds that this process is feeding, and how much is `left`, from `start` to `stop`.

    `left` is about how many seeds it has yet to put into the list, None where that is not known. What Redis does
    not take is lost.
    """

    def __init__(self, state: State) -> None:
        self.left: int | None = None
        self._shard = state.shards[0]
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._told = False

    async def start(self) -> None:
        """Begin to report."""
        self._reports = asyncio.create_task(self._report())

    async def stop(self) -> None:
        """Report that it has ended."""
        while not self._reports.done():  # on Python 3.11 the client can swallow a cancellation
            self._reports.cancel()
            await asyncio.wait((self._reports,), timeout=0.1)
        if self._told:
            await asyncio.wait((asyncio.create_task(self._note(done=True)),), timeout=_PATIENCE_S)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._note(done=False)

    async def _note(self, *, done: bool) -> None:
        note = {"feeder": self._name, "left": "" if self.left is None else str(self.left), "done": done}
        try:
            await functions.call(self._shard.redis, functions.command("note_feeder", self._shard.keys, note))
        except REDIS_TROUBLE:
            return
        self._told = True
