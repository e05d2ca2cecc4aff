"""Where the parts of a chart are. A bar says its numbers when one points at it; tables say them, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

_WIDTH, _HEIGHT = 420, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 8, 20
_MOST_LABELS = 4


class Bar(NamedTuple):
    """A bar: what stands below it, how high it is, what it says; `line` is a bound for it, None without."""

    label: str
    value: float
    says: str
    line: float | None = None


def charted(data: Sequence[Bar]) -> dict[str, Any]:
    """Return the coordinates of bars, of the bounds above them, and of a grid with its labels."""
    top = _nice(max([1.0, *(bar.value for bar in data), *(bar.line or 0 for bar in data)]))
    width, every = (_WIDTH - _LEFT - _RIGHT) / len(data), math.ceil(len(data) / _MOST_LABELS)

    def y(value: float) -> float:
        return round(_TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM), 2)

    bars = []
    for index, bar in enumerate(data):
        left = _LEFT + index * width
        bars.append(
            {
                "value": bar.value,
                "says": bar.says,
                "label": bar.label if index % every == 0 and left < _WIDTH - 70 else "",
                "begin": round(left, 2),
                "end": round(left + width, 2),
                "x": round(left + width * 0.1, 2),
                "width": round(width * 0.8, 2),
                "y": y(bar.value),
                "height": round(max(y(0) - y(bar.value), 1), 2),
                "line": None if bar.line is None else y(bar.line),
            }
        )
    grid = [(y(value), _short(value)) for value in (0, top / 2, top)]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "grid": grid,
        "bars": bars,
    }


def _short(value: float) -> str:
    """Return a number for an axis."""
    for unit in ("", " k", " M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} G"


def _nice(value: float) -> float:
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value))
