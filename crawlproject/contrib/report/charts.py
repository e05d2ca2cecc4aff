"""The pictures of a report, as inline SVG. A bar says its numbers when one points at it; tables say them, too."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from crawlproject.contrib.report.markup import Markup, markup

_WIDTH, _HEIGHT = 420, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 8, 20
_MOST_LABELS = 4


class Bar(NamedTuple):
    """A bar: what stands below it, how high it is, what it says; `line` is a bound for it, None without."""

    label: str
    value: float
    says: str
    line: float | None = None


def bars(data: Sequence[Bar], title: str) -> Markup:
    """Return a chart of bars, from left to right, and of the bounds above them as lines."""
    top = _nice(max([1.0, *(bar.value for bar in data), *(bar.line or 0 for bar in data)]))
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(data), 1)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for value in (0, top / 2, top):
        parts.append(_line("grid", _LEFT, _WIDTH - _RIGHT, y(value)))
        label = '<text x="{}" y="{}" text-anchor="end">{}</text>'
        parts.append(markup(label, _LEFT - 5, _at(y(value) + 4), _short(value)))
    every = max(math.ceil(len(data) / _MOST_LABELS), 1)
    for index, bar in enumerate(data):
        left = _LEFT + index * width
        if bar.value:
            place = (left + width * 0.1, y(bar.value), width * 0.8, max(y(0) - y(bar.value), 1))
            parts.append(_box("bar", *place, bar.says))
        if bar.line is not None:
            parts.append(_line("bound", left, left + width, y(bar.line)))
        if index % every == 0 and left < _WIDTH - 70:
            parts.append(markup('<text x="{}" y="{}">{}</text>', _at(left), _HEIGHT - 5, bar.label))
    return _svg("chart", _HEIGHT, title, parts)


def shares(counts: Mapping[str, int], title: str, gone: Collection[int]) -> Markup:
    """Return one bar with the share of each of `counts`, coloured by what it is: see `kind_of`."""
    whole, left, parts = max(sum(counts.values()), 1), 0.0, []
    for name, count in counts.items():
        width = _WIDTH * count / whole
        parts.append(_box(kind_of(name, gone), left, 0, width, 16, f"{name}: {count}"))
        left += width
    return _svg("shares", 16, title, parts)


def _svg(kind: str, height: int, title: str, parts: list[Markup]) -> Markup:
    template = '<svg class="{}" viewBox="0 0 {} {}" role="img"><title>{}</title>{}</svg>'
    return markup(template, kind, _WIDTH, height, title, parts)


def _box(kind: str, x: float, y: float, width: float, height: float, says: str) -> Markup:
    template = '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
    return markup(template, kind, *map(_at, (x, y, width, height)), says)


def _line(kind: str, left: float, right: float, y: float) -> Markup:
    template = '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"></line>'
    return markup(template, kind, *map(_at, (left, right, y, y)))


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
