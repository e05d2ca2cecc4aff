"""The pictures of a report, as inline SVG. A bar says its numbers when one points at it; tables say them, too."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from crawlproject.report.markup import make

_WIDTH, _HEIGHT = 420, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 8, 20
_MOST_LABELS = 4


class Bar(NamedTuple):
    """A bar: what stands below it, how high it is, what it says; `line` is a bound for it, None without."""

    label: str
    value: float
    says: str
    line: float | None = None


def bars(data: Sequence[Bar], title: str) -> Element:
    """Return a chart of bars, from left to right, and of the bounds above them as lines."""
    top = _nice(max([1.0, *(bar.value for bar in data), *(bar.line or 0 for bar in data)]))
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(data), 1)
    svg = make("svg", make("title", title), viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", class_="chart")

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    for part in (0, 0.5, 1):
        at = y(top * part)
        svg.append(make("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=_at(at), y2=_at(at)))
        svg.append(make("text", _short(top * part), x=_LEFT - 5, y=_at(at + 4), text_anchor="end"))
    every = max(math.ceil(len(data) / _MOST_LABELS), 1)
    for index, bar in enumerate(data):
        left = _LEFT + index * width
        if bar.value:
            place = {"x": _at(left + width * 0.1), "width": _at(width * 0.8), "y": _at(y(bar.value))}
            height = max(y(0) - y(bar.value), 1)
            svg.append(make("rect", make("title", bar.says), class_="bar", height=_at(height), **place))
        if bar.line is not None:
            bound = _at(y(bar.line))
            svg.append(make("line", class_="bound", x1=_at(left), x2=_at(left + width), y1=bound, y2=bound))
        if index % every == 0 and left < _WIDTH - 70:
            svg.append(make("text", bar.label, x=_at(left), y=_HEIGHT - 5))
    return svg


def shares(counts: Mapping[str, int], title: str, gone: Collection[int]) -> Element:
    """Return one bar with the share of each of `counts`, coloured by what it is: see `kind_of`."""
    whole, left = max(sum(counts.values()), 1), 0.0
    svg = make("svg", make("title", title), viewBox=f"0 0 {_WIDTH} 16", role="img", class_="shares")
    for name, count in counts.items():
        width = _WIDTH * count / whole
        says = make("title", f"{name}: {count}")
        svg.append(make("rect", says, class_=kind_of(name, gone), x=_at(left), y=0, width=_at(width), height=16))
        left += width
    return svg


def kind_of(result: str, gone: Collection[int]) -> str:
    """Return the class of a result: `good`, `moved`, `missing` or `bad`.

    `gone` are statuses that stand for link rot at this source, beside 404 and 410. A 416 is no error, as only
    probes ask for a part (politeness/outcomes.py).
    """
    if result in {"404", "410", *map(str, gone)}:
        return "missing"
    return "moved" if result == "416" else {"2": "good", "3": "moved"}.get(result[:1], "bad")


def number(value: float) -> str:
    """Return a number for people."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


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


def _at(place: float) -> str:
    return f"{place:.2f}".rstrip("0").rstrip(".")
