"""Where seeds come from as they come, such as a queue: the interface of plug-ins for `scrapy feed`."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple


class SeedList(NamedTuple):
    """The list that workers take seeds from. Its functions block.

    `push` puts seeds into Redis, all or none; `has_room` says whether it may; `say` tells the operator.
    """

    push: Callable[[list[bytes]], object]
    has_room: Callable[[], bool]
    say: Callable[[str], None]


class SeedStream(ABC):
    """What `scrapy feed --NAME` reads from. `options` are those that it adds, as argparse takes them.

    A seed is put down as read after it is in Redis: it may come twice, and is admitted once.
    """

    about: ClassVar[str]  # for the help of `--NAME`
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, seeds: SeedList, opts: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        self.seeds = seeds
        self.full = False  # whether there was no room when it looked last
        self.rejected = 0  # what can be no seed

    @abstractmethod
    def opened(self) -> AbstractContextManager[None]:
        """Return a context in which it is connected."""

    @abstractmethod
    def feed(self) -> int:
        """Move a batch of seeds, if one comes within half a second, and return its size.

        Raises:
            CrawlprojectError: it cannot go on.
            RedisError: the batch is kept: call it again.

        """

    @abstractmethod
    def lag(self) -> int | None:
        """Return about how many are left, None where that is not known."""
