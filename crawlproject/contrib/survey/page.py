"""A survey as a page of HTML: one file, without scripts, that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import lxml.html
from lxml.builder import E

from crawlproject.contrib.survey.events import OUTCOMES
from crawlproject.contrib.survey.figures import TABLES, Row, gaps, shown, summary, words
from crawlproject.program import as_called

_WIDE = 4  # columns, of which a table has the whole width of the page


def page(made: Row) -> bytes:
    """Return a survey as a document. lxml escapes all texts; control characters are gone before."""
    style = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    when = "Made {made}, from {events:,} events of {urls:,} URLs, {first} to {last}.".format(**made)
    main = E.main(E.h1("Survey of a crawl"), E.p({"class": "muted"}, when))
    main.extend(E.p({"class": "note"}, as_called(one)) for one in gaps(made))
    for subject, tables in TABLES.items():
        found, totals = made[subject], made[subject]["totals"]
        if totals["urls"]:
            legend = (E.span({"class": "legend"}, _bar({one: 1}, 1), one) for one in OUTCOMES)
            main.extend(
                [
                    E.h2(subject.capitalize()),
                    E.p(summary(totals)),
                    _bar({one: totals[one] for one in OUTCOMES}, totals["urls"]),
                    E.p(*legend),
                ]
            )
            main.append(
                E.div(
                    {"class": "tables"},
                    *(_table(key, title, found[key]) for key, (title, _) in tables.items() if found[key]),
                )
            )
    if made["links"]:
        rows = [
            {"links": words(name.removeprefix("links_")), "urls": count} for name, count in made["links"].items()
        ]
        main.extend([E.h2("What became of links"), _table("links", "Budgets and traps", rows)])
    head = E.head(
        E.meta(charset="utf-8"),
        E.meta({"http-equiv": "Content-Security-Policy", "content": policy}),
        E.meta(name="viewport", content="width=device-width, initial-scale=1"),
        E.title("Survey of a crawl"),
        E.style(style),
    )
    text: bytes = lxml.html.tostring(
        E.html({"lang": "en"}, head, E.body(main)), doctype="<!DOCTYPE html>", encoding="utf-8"
    )
    return text


def _table(key: str, title: str, rows: Sequence[Row]) -> Any:
    """Return a table with a bar in each row: of outcomes as shares, or of a count beside the largest one."""
    kinds = ["text" if any(isinstance(row[name], str) for row in rows) else "" for name in rows[0]]
    heads = [E.th({"scope": "col", "class": kind}, words(name)) for name, kind in zip(rows[0], kinds, strict=True)]
    body = [
        [E.td({"class": kind}, cell) for cell, kind in zip(row, kinds, strict=True)] for row in shown(key, rows)
    ]
    bars = []
    if "alive" in rows[0]:
        bars = [_bar(parts := {one: row[one] for one in OUTCOMES}, sum(parts.values())) for row in rows]
    elif "measure" not in rows[0] and key != "reasons":
        counts = [row.get("pages", row.get("urls")) for row in rows]
        bars = [_bar({row.get("outcome", "share"): n}, max(counts)) for row, n in zip(rows, counts, strict=True)]
    if bars:
        heads.insert(1, E.td({"class": "plot"}))
        for cells, bar in zip(body, bars, strict=True):
            cells.insert(1, E.td(bar))
    table = E.table(E.thead(E.tr(*heads)), E.tbody(*(E.tr(*cells) for cells in body)))
    return E.section({"class": "wide" if len(kinds) >= _WIDE else "", "tabindex": "0"}, E.h3(title), table)


def _bar(parts: Mapping[str, int], whole: int) -> Any:
    """Return a bar, of parts by their classes; numbers beside it say the same."""
    svg = E.svg({"viewBox": "0 0 100 10", "preserveAspectRatio": "none", "aria-hidden": "true"})
    left = 0.0
    for name, number in parts.items():
        width = 100 * number / max(whole, 1)
        svg.append(E.rect({"class": name, "x": f"{left:.2f}", "width": f"{width:.2f}", "height": "10"}))
        left += width
    return svg
