"""The interface of what the events of a shard go to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager


class Sink(ABC):
    """Takes the events of one shard: a reader of its streams."""

    def __init__(self) -> None:
        self.written = 0  # events
        self.skipped = 0  # entries that are not events: not written by us
        self.remarks: list[str] = []  # notes for the operator, after it was opened

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[None]:
        """Return a context that holds what is written and the lease of its reader: one process at a time.

        Raises:
            CrawlprojectError: it cannot be written, or another process writes it.
            ReaderTaken: another process reads under the same name.
            RedisError, StorageDown: enter another one later.

        """

    @abstractmethod
    async def drain(self, block_s: float = 0.0) -> int:
        """Take what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            CrawlprojectError: it cannot go on.
            ReaderTaken: another process reads under this name by now; this one must have hung.
            RedisError, StorageDown: nothing is lost: call it again.

        """

    async def finish(self) -> None:  # noqa: B027
        """Have what waits for more appear, at the end."""
