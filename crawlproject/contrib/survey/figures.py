"""The figures of a survey: tables, each by a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
from rich.filesize import decimal

from crawlproject.contrib.survey.events import OPTIONAL, OUTCOMES, SUBJECTS
from crawlproject.texts import counted, grouped, printable

Row = Mapping[str, Any]

_ALIVE = "FROM {of} WHERE outcome = 'alive'"
_BY_OUTCOME = ", ".join(f"count(*) FILTER (outcome = '{one}') AS {one}" for one in OUTCOMES)
_BY_SOURCE = f"SELECT source, {_BY_OUTCOME}, sum(size)::BIGINT AS bytes FROM {{of}} GROUP BY source"
_TOTALS = (
    f"SELECT count(*) AS urls, {_BY_OUTCOME}, sum(size)::BIGINT AS bytes, count(DISTINCT source) AS sources, "
    "count(DISTINCT source) FILTER (outcome = 'alive') AS sources_alive FROM {of}"
)
_EVENTS = """SELECT coalesce(sum(times) FILTER (subject <> 'unreadable'), 0)::BIGINT AS events,
    count(*) FILTER (subject <> 'unreadable') AS urls,
    coalesce(sum(times) FILTER (subject = 'unreadable'), 0)::BIGINT AS unreadable,
    strftime(min(fetched_at), '%Y-%m-%dT%H:%M:%SZ') AS first,
    strftime(max(fetched_at), '%Y-%m-%dT%H:%M:%SZ') AS last FROM urls"""
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


def _counted(name: str, value: str) -> str:
    """Return the query for how many of those that are alive have each value; for none if no value is known."""
    of_each = f"SELECT coalesce({value}, 'unknown') AS {name}, count(*) AS urls, sum(size)::BIGINT AS bytes"
    known = f"QUALIFY count(*) OVER () > 1 OR max({value}) IS NOT NULL"
    return f"{of_each} {_ALIVE} GROUP BY 1 {known} ORDER BY urls DESC, 1 LIMIT {{top}}"


def _measured(**measures: str) -> str:
    """Return the query for means and percentiles (by t-digest) of expressions, over those that are alive."""
    cells = ", ".join(f"q[{place}] AS {name}" for place, name in enumerate(_QUANTILES, 1))
    rows = (
        f"SELECT {place} AS place, '{name}' AS measure, count(x) AS urls, avg(x) AS mean, max(x) AS most, "
        f"sum(x) AS total, approx_quantile(x, {list(_QUANTILES.values())}) AS q "
        f"FROM (SELECT ({what})::DOUBLE AS x {_ALIVE})"
        for place, (name, what) in enumerate(measures.items())
    )
    whole = f"({' UNION ALL '.join(rows)}) WHERE urls > 0 ORDER BY place"
    return f"SELECT measure, urls, mean, {cells}, most, total FROM {whole}"


# Tables by their keys, with titles; in a query `{of}` is `pages` or `images`.
_OF_BOTH = {
    "results": (
        "Results, by status or kind of error",
        "SELECT result, outcome, count(*) AS urls FROM {of} GROUP BY ALL ORDER BY urls DESC, result LIMIT {top}",
    ),
    "sources": ("Largest sources", f"{_BY_SOURCE} ORDER BY count(*) DESC, source LIMIT {{top}}"),
    "worst_sources": (
        "Sources with the most URLs gone or failed",
        f"{_BY_SOURCE} HAVING gone + failed > 0 ORDER BY gone + failed DESC, source LIMIT {{top}}",
    ),
    "reasons": (
        "Reasons for URLs forbidden or failed",
        "SELECT outcome, kind, reason, count(*) AS urls, count(DISTINCT source) AS sources FROM {of} "
        "WHERE reason IS NOT NULL GROUP BY ALL ORDER BY urls DESC, reason LIMIT {top}",
    ),
    "content_types": ("Content types", _counted("content_type", "nullif(content_type, '')")),
    "size_classes": (
        "Sizes, each class twice the one before",
        "SELECT (1000 * 2 ** floor(log2(greatest(size, 1) / 1000)))::BIGINT AS at_least, count(*) AS urls "
        f"{_ALIVE} AND size IS NOT NULL GROUP BY ALL ORDER BY at_least",
    ),
    "sizes": ("Sizes", _measured(size="size", wire_size="wire_size")),
}
_OF_PAGES = {
    "depths": (
        "Depth: links on the way from the seed",
        f"SELECT depth, count(*) AS urls {_ALIVE} AND depth IS NOT NULL GROUP BY ALL ORDER BY depth",
    ),
    "languages": ("Languages", _counted("language", "nullif(language, '')")),
    "ways": ("Redirects", _counted("statuses", "coalesce(statuses, redirects || ' redirects')")),
    "linked_hosts": (
        "Hosts that pages of other hosts link to",
        "SELECT host, count(*) AS pages, approx_count_distinct(source) AS sources "
        "FROM (SELECT source, unnest(hosts) AS host FROM {of}) GROUP BY 1 ORDER BY pages DESC, host LIMIT {top}",
    ),
    "leading_pages": (
        "Pages and sitemaps that led to the most others",
        "SELECT found_on AS page, count(*) AS pages FROM {of} WHERE found_on IS NOT NULL GROUP BY ALL "
        "ORDER BY pages DESC, page LIMIT {top}",
    ),
    "per_page": (
        "Per page",
        _measured(
            links_in_scope="links",
            outlinks="outlinks",
            outlinks_elsewhere="elsewhere",
            images="images",
            hours_until_fetched="date_diff('second', discovered_at, fetched_at) / 3600",
        ),
    ),
}
TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {"pages": {**_OF_BOTH, **_OF_PAGES}, "images": _OF_BOTH}


def survey(database: duckdb.DuckDBPyConnection, top: int, stats: Row | None = None) -> dict[str, Any]:
    """Return the survey of what `events.opened` has read, as README.md describes its keys.

    `top` is the number of rows of each table, `stats` the output of `scrapy stats` for the spider `pages`.
    """
    made = {"made": datetime.now(UTC).isoformat(timespec="seconds"), **_rows(database, _EVENTS)[0]}
    counts = ", ".join(f"count({name}) AS {name}" for name in OPTIONAL)
    [known] = _rows(database, f"SELECT {counts} {_ALIVE.format(of='pages')}")
    made["missing"] = [name for name, count in known.items() if not count]
    for subject in SUBJECTS:
        [totals] = _rows(database, _TOTALS.format(of=subject))
        tables = TABLES[subject].items() if totals["urls"] else ()
        made[subject] = {"totals": totals} | {
            key: _rows(database, query.format(of=subject, top=top)) for key, (_, query) in tables
        }
    made["links"] = None if stats is None else _links(stats)
    return made


def _links(stats: Row) -> dict[str, int]:
    """Return what has become of links, by the counts of `scrapy stats`."""
    other = stats.get("not_html")
    counts = {f"not_html_{name}": count for name, count in other.items()} if isinstance(other, dict) else {}
    counts = {name: count for name, count in stats.items() if name[:6] == "links_"} | counts
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _rows(database: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    found = database.execute(query)
    names = [name for name, *_ in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


# For people


def words(name: str) -> str:
    """Return the name of a column or a count as words."""
    return name.replace("_", " ")


def shown(key: str, rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of a table as texts."""
    sizes = {"sizes": ("mean", "most", "total", *_QUANTILES), "size_classes": ("at_least",)}.get(key, ("bytes",))
    return [[_cell(name, value, name in sizes) for name, value in row.items()] for row in rows]


def _cell(name: str, value: Any, is_size: bool) -> str:
    if isinstance(value, str):
        return printable(words(value) if name == "measure" else value, 300)
    if value is None:
        return "-"
    if is_size:
        return decimal(round(value))
    return grouped(value)


def text_columns(rows: Sequence[Row]) -> set[str]:
    """Return the names of the columns that have texts; the others have numbers."""
    return {name for row in rows for name, value in row.items() if isinstance(value, str)}


def summary(totals: Row) -> str:
    """Return the totals of pages, or of images, in a sentence."""
    outcomes = ", ".join(f"{totals[one]:,} {one}" for one in OUTCOMES)
    size = "" if totals["bytes"] is None else f"; {decimal(totals['bytes'])}"
    sources = f"{totals['sources']:,} sources, {totals['sources_alive']:,} of them alive"
    return f"{totals['urls']:,} URLs: {outcomes}{size}; {sources}"


def gaps(made: Row) -> Iterator[str]:
    """Yield what is missing in a survey."""
    if made["unreadable"]:
        yield f"left out: {counted(made['unreadable'], 'line')} without an event"
    if not made["pages"]["totals"]["urls"]:
        yield "these files have no events of pages, only of images; scrapy events FILE writes both"
        return
    if made["missing"]:
        yield f"no page has {', '.join(made['missing'])}; figures of these are left out"
    if made["links"] is None:
        yield "traps and budgets leave no events: give their counts by --stats, from scrapy stats --spider pages"
