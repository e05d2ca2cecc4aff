"""A survey as a page of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from crawlproject.contrib.survey.events import OUTCOMES
from crawlproject.contrib.survey.figures import TABLES, Row, gaps, shown, summary, text_columns, words
from crawlproject.documents import Document
from crawlproject.program import as_called
from crawlproject.texts import grouped

_Parts = list[tuple[str, float, float]]  # of a bar: what each is, where it begins, and its width, in hundredths


@cache
def _document() -> Document:
    named = {one.__name__: one for one in (grouped, shown, summary, text_columns, words)}
    return Document(
        "crawlproject.contrib.survey", outcomes=OUTCOMES, tables=TABLES, bars=_bars, shares=_shares, **named
    )


def page(made: Row) -> bytes:
    """Return a survey as a document."""
    links = [
        {"links": words(name.removeprefix("links_")), "urls": count}
        for name, count in (made["links"] or {}).items()
    ]
    return _document().render(made=made, gaps=map(as_called, gaps(made)), links=links)


def _bars(key: str, rows: Sequence[Row]) -> list[_Parts]:
    """Return a bar for each row, if there are any: of outcomes as shares, or of a count beside the largest one."""
    if "alive" in rows[0]:
        return [_shares(row) for row in rows]
    if "measure" in rows[0] or key == "reasons":
        return []
    counts = [row.get("pages", row.get("urls")) for row in rows]
    most = max(counts)
    return [_bar({row.get("outcome", "share"): n}, most) for row, n in zip(rows, counts, strict=True)]


def _shares(row: Row) -> _Parts:
    parts = {one: row[one] for one in OUTCOMES}
    return _bar(parts, sum(parts.values()))


def _bar(parts: Mapping[str, int], whole: int) -> _Parts:
    """Return a bar of parts; numbers beside it say the same."""
    found: _Parts = []
    left = 0.0
    for name, number in parts.items():
        width = 100 * number / max(whole, 1)
        found.append((name, round(left, 2), round(width, 2)))
        left += width
    return found
