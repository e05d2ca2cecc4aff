"""Processes that feed seeds tell Redis so: what they have left is no part of the crawl yet."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from types import TracebackType
from typing import Self

from crawlproject.state import functions
from crawlproject.state.client import REDIS_TROUBLE, BlockingState

_EVERY_S = 2.0
_PATIENCE_S = 1.0  # with Redis at the end: without its word it is forgotten ten seconds later


class Feeder:
    """Reports every two seconds, inside the block, that this process is feeding, and how much is `left`.

    `left` is about how many seeds it has yet to put into the list, None where that is not known. A thread says it:
    the process itself may wait for long for room, for its input or for Kafka. What Redis does not take is lost.
    """

    def __init__(self, state: BlockingState) -> None:
        self.left: int | None = None
        self._state = state
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, name="feeder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE_S)

    def _report(self) -> None:
        told = False
        while not self._stop.wait(_EVERY_S):
            told = self._note(done=False) or told
        if told:
            self._note(done=True)

    def _note(self, *, done: bool) -> bool:
        left = "" if self.left is None else str(self.left)
        try:
            note = {"feeder": self._name, "left": left, "done": done}
            functions.call_blocking(self._state.redis, functions.command("note_feeder", self._state.keys, note))
        except REDIS_TROUBLE:
            return False
        return True
