"""Where one kind is tried: a folder, Redis servers, how much of it there is to be, and what broke something."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from crawlproject.config import SETTINGS
from crawlproject.state import embedded

T = TypeVar("T")
_SHOWN = 300  # characters of what broke


@dataclass
class Tally:
    """The cases of one kind: `broken` has a line for each that did not end as it must.

    `notes` say what else was seen, such as the longest standstill.
    """

    kind: str
    tried: int = 0
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def judge(self, case: str, fault: str) -> None:
        """Count a case; `fault` is what is wrong about how it ended, "" if nothing is."""
        self.tried += 1
        if fault:
            self.broken.append(ascii(f"{case[:100]}: {fault}")[1:-1][:_SHOWN])


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


def environ_of(url: str, **settings: str) -> dict[str, str]:
    """Return the environment of a command with that Redis, and with none of our settings but these."""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return inherited | {"REDIS_URL": url} | settings
