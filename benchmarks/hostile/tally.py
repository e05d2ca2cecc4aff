"""What was tried of one kind, and what of it broke something."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    @property
    def held(self) -> int:
        """How many cases ended as they must."""
        return self.tried - len(self.broken)

    def judge(self, case: str, fault: str) -> None:
        """Count a case; `fault` is what is wrong about how it ended, "" if nothing is."""
        self.tried += 1
        if fault:
            self.broken.append(ascii(f"{case[:100]}: {fault}")[1:-1][:_SHOWN])
