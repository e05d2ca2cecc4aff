"""Where one kind is tried: a folder, Redis servers, and how much of it there is to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from crawlproject.state import embedded

T = TypeVar("T")


class Room(NamedTuple):
    """A folder of its own, and the most cases of each sort; 0 for all of them."""

    folder: Path
    most: int = 0

    def some(self, cases: Sequence[T]) -> Sequence[T]:
        """Return the cases to try: all, or as many as there may be, from one end of the list to the other."""
        if not self.most or len(cases) <= self.most:
            return cases
        return [cases[number * len(cases) // self.most] for number in range(self.most)]

    def count(self, most: int) -> int:
        """Return how many to make of cases of which any number can be made."""
        return min(most, self.most) if self.most else most

    @contextmanager
    def redis(self) -> Iterator[str]:
        """Start a Redis; yield its URL."""
        folder = self.folder / "redis"
        try:
            yield embedded.ensure(folder)
        finally:
            embedded.stop(folder)
