"""Where one kind is tried: a folder, how much of it there is to be, and what broke something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

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
    """A folder of its own, the most cases of each sort (0: all), and how many mutated pictures there are."""

    folder: Path
    most: int = 0
    mutations: int = 3_000

    def some(self, cases: Sequence[T]) -> Sequence[T]:
        """Return the cases to try: all, or as many as there may be, from one end of the list to the other."""
        if not self.most or len(cases) <= self.most:
            return cases
        return [cases[number * len(cases) // self.most] for number in range(self.most)]

    def count(self, most: int) -> int:
        """Return how many to make of cases of which any number can be made."""
        return min(most, self.most) if self.most else most
