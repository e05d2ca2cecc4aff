"""The rules of circuits: of all, or of one source (`circuit` in the catalogue)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from crawlproject.config.parsers import Parser, number, share, whole

_LONGEST_WINDOW_S = 3600  # a twelfth of it counts up to 65,535 results: 200 a second, the highest rate by size


def _rule(default: float, parse: Parser) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True)
class CircuitRules:
    """When a source's circuit opens, for how long, and when it halts; durations in seconds.

    It opens when the sliding `window` holds more than `samples` results and the share of errors among them is
    above `errors`. It stays open for `open` seconds, twice as long each time one of the `probes` fails, up to
    `open_max`. It halts after `halt_after` errors in a row, and when a probe fails after `halt_periods` open
    periods in a row without a success. `errors` and `open` are settings, too (`CRAWL_CIRCUIT_*`).
    """

    window: float = _rule(60.0, number(1, _LONGEST_WINDOW_S))
    samples: int = _rule(5, whole(0))
    errors: float = _rule(0.1, share)
    open: float = _rule(60.0, number(0, above=True))
    open_max: float = _rule(3600.0, number(0, above=True))
    probes: int = _rule(3, whole(1, 1000))
    halt_after: int = _rule(50, whole(1))
    halt_periods: int = _rule(5, whole(1))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated rules among `values`, by name.

        Raises:
            ValueError: a name is unknown or a value invalid; the message names it.

        """
        parsed, rules = {}, {one.name: one.metadata["parse"] for one in fields(cls)}
        for name, value in values.items():
            if name not in rules:
                raise ValueError(f"{name} is not a circuit rule; the rules are {', '.join(rules)}")
            try:
                parsed[name] = rules[name](value)
            except ValueError as error:
                raise ValueError(f"{name}={value!r} must be {error}") from None
        return parsed

    @staticmethod
    def pack(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return rules as the functions read them: durations in microseconds."""
        seconds = ("window", "open", "open_max")
        return {name: int(value * 1_000_000) if name in seconds else value for name, value in values.items()}

    def packed(self) -> dict[str, Any]:
        """Return all rules as the functions read them."""
        return self.pack(asdict(self))
