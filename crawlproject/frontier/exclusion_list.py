"""What the leader does about exclusions: follows CRAWL_EXCLUDE."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from crawlproject.errors import ConfigError
from crawlproject.exclusions.names import read_exclusions
from crawlproject.exclusions.stored import are_published, names_of_file
from crawlproject.state.client import State
from crawlproject.threads import in_thread

T = TypeVar("T")

logger = logging.getLogger(__name__)

_WRITTEN = 100  # names in one call: it holds up Redis for some 3 ms
_READ_ANYWAY_S = 60.0  # after which a file is read again that has not changed: somebody may have changed the set


class ExclusionList:
    """The exclusions, as the leader keeps them. Every other process only heeds what is in Redis.

    What an operator has excluded is not the file's to include again, and the other way round. Without a file
    nothing is changed of what another leader's had; an empty file gives that up.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.begin()

    def begin(self) -> None:
        """Begin a term: nothing is known of what is in Redis."""
        self.is_published = self.path is None  # what the file names is excluded
        self._stamp: tuple[int, int, int] | None = None
        self._read_at = 0.0
        self._fault = ""

    async def follow_file(self, state: State, fence: int) -> None:
        """Exclude what the file names, and include again what it names no more, if it has changed."""
        if (path := self.path) is None:
            return
        now = asyncio.get_running_loop().time()
        try:
            stamp = await in_thread("exclusions", lambda: _stamp(path))
            if stamp == self._stamp and now < self._read_at + _READ_ANYWAY_S:
                return
            names = await in_thread("exclusions", lambda: read_exclusions(path))
        except (ConfigError, OSError) as error:
            fault = str(error)
            if fault != self._fault:
                logger.error("%s; what it named when it could last be read stays excluded", fault)
            self._fault, self.is_published = fault, True
            return
        self._fault = ""
        if await self._publish(state, fence, names):
            self._stamp, self._read_at, self.is_published = stamp, now, True

    async def _publish(self, state: State, fence: int, names: dict[str, str]) -> bool:
        """Write the differences to Redis; False if another leads by now."""
        for page in _pages(list(names.items())):
            known = await are_published(state, dict(page))
            new = dict(item for item, is_known in zip(page, known, strict=True) if not is_known)
            if new and not await state.scripts.exclude(new, fence=fence):
                return False
        cursor, more = 0, True
        while more:
            cursor, stored = await names_of_file(state, cursor)
            for gone in _pages([name for name in stored if name not in names]):
                if not await state.scripts.include(gone, fence=fence):
                    return False
            more = cursor != 0
        return True


def _stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when a file is written or replaced.

    Raises:
        ConfigError: it is not there.

    """
    try:
        found = Path(path).stat()
    except OSError as error:
        raise ConfigError(f"CRAWL_EXCLUDE={path} cannot be read: {error.strerror or error}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _WRITTEN):
        yield items[first : first + _WRITTEN]
