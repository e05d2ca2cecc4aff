"""A snapshot as people read it: a header, and a table of sources that fits where it is shown.

All texts go through `printable` and into rich's `Text`, which reads no markup: names come from strangers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.style import Style
from rich.table import Table
from rich.text import Text

from crawlproject.status.snapshot import General, Snapshot, Specific
from crawlproject.status.source_status import duration
from crawlproject.texts import printable

_GAP = 1  # cells between columns
_LEAST = 14  # cells to which an elastic column is cut
_BARS = "▁▂▃▄▅▆▇█"
ALARM = Style(color="red", bold=True)
_MOST_SHARDS = 5  # from which nothing goes out, each in a line
_WARNING = Style(color="yellow")
_QUIET = Style(dim=True)


class Column(NamedTuple):
    """A column: its head, its cell for a source, and its rank where there is no room for all.

    The columns of the highest `rank` are left out first. An `elastic` column is cut before that. One that is
    `optional` is left out where none of its cells says anything.
    """

    head: str
    cell: Callable[[str, Specific], str]
    rank: int
    elastic: bool = False
    optional: bool = False


COLUMNS = (
    Column("source", lambda name, source: name, 0, elastic=True),
    Column("state", lambda name, source: mark(source), 1),
    Column("limit", lambda name, source: digits(source.rate_limit), 4),
    Column("allowed", lambda name, source: digits(source.effective_rate), 3),
    Column("seen", lambda name, source: "-" if (rate := rate_of(source)) is None else digits(rate), 2),
    Column("queued", lambda name, source: count(source.queued + source.waiting), 2),
    Column("delayed", lambda name, source: count(source.delayed), 10),
    Column("in flight", lambda name, source: count(source.in_flight), 5),
    Column("budget", lambda name, source: _budget(source.budget), 7, optional=True),
    Column("done", lambda name, source: count(source.successful), 3),
    Column("failed", lambda name, source: count(source.failed), 3),
    Column("eta", lambda name, source: duration(source.eta_s) if source.eta_s != 0 else "-", 6),
    Column("fetch p50", lambda name, source: _seconds(source.fetch_p50_s), 12),
    Column("p99", lambda name, source: _seconds(source.fetch_p99_s), 11),
    Column("last 50", lambda name, source: statuses(source.last_50_statuses), 9, elastic=True),
    Column("reason", lambda name, source: source.reason, 8, elastic=True),
)

SORTS: Mapping[str, Callable[[str, Specific], tuple[float, ...]]] = {
    "trouble": lambda name, source: (-source.trouble, -_pace(source), -source.work),
    "rate": lambda name, source: (-_pace(source), -source.work),
    "work": lambda name, source: (-source.work,),
    "failed": lambda name, source: (-(source.error_rps or 0), -source.failed),
    "eta": lambda name, source: (-(math.inf if source.eta_s is None else source.eta_s),),
    "name": lambda name, source: (),
}

NamedSource = tuple[str, Specific]


def ordered(sources: Mapping[str, Specific], sort: str) -> list[NamedSource]:
    """Return the sources sorted by one of `SORTS`, then by name."""
    return sorted(sources.items(), key=lambda row: (*SORTS[sort](*row), row[0]))


def cut(rows: Sequence[NamedSource], room: int, sort: str) -> Sequence[NamedSource]:
    """Return the first `room` of `rows`; by trouble, the sources in trouble leave half of it to the others."""
    if sort != "trouble" or len(rows) <= room:
        return rows[:room]
    in_trouble = [row for row in rows if row[1].trouble]
    others = rows[len(in_trouble) :]
    first = in_trouble[: max(room // 2, room - len(others))]
    return [*first, *others[: room - len(first)]]


def sources_table(rows: Sequence[NamedSource], width: int) -> Table:
    """Return the table of `rows`, `width` cells wide at most."""
    every = {column: [printable(column.cell(*row), 500) for row in rows] for column in COLUMNS}
    cells = {column: texts for column, texts in every.items() if any(texts) or not column.optional}
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold underline")
    shown = fitted({column: [column.head, *texts] for column, texts in cells.items()}, width)
    for column, cells_wide in shown.items():
        justify: JustifyMethod = "left" if column.elastic or column.head == "state" else "right"
        table.add_column(column.head, justify=justify, width=cells_wide, no_wrap=True, overflow="ellipsis")
    for index, (_, source) in enumerate(rows):
        table.add_row(*(Text(cells[column][index]) for column in shown), style=style_of(source))
    return table


def fitted(cells: Mapping[Column, Sequence[str]], width: int) -> dict[Column, int]:
    """Return the columns that fit into `width` cells, in their order, with the width of each."""
    natural = {column: max(map(cell_len, texts)) for column, texts in cells.items()}
    widths = {column: min(wide, _LEAST) if column.elastic else wide for column, wide in natural.items()}

    def spare() -> int:
        return width - sum(widths.values()) - _GAP * (len(widths) - 1)

    for column in sorted(natural, key=lambda column: -column.rank)[:-1]:
        if spare() < 0:
            del widths[column]
    for column in sorted(widths, key=lambda column: column.rank):
        if column.elastic:
            widths[column] = max(min(natural[column], widths[column] + spare()), 1)
    return widths


def header(shown: Snapshot, rates: Sequence[float], width: int) -> list[Text]:
    """Return the lines above the table: how fast, how much, how long; a sparkline shows the last `rates`."""
    general = shown.general
    halted, tripped = len(general.circuit_breaker_tripped), len(general.circuit_breaker_open)
    speed = [
        Text(f"{digits(general.processing_rate)} {unit_of(shown.sample.spider)}/s {sparkline(rates)}".rstrip()),
        Text(f"ok {digits(general.success_rps)}"),
        Text(f"errors {digits(general.error_rps)}", _WARNING if "error_rps" in general.trouble else ""),
        Text(f"retries {digits(general.retry_rps)}"),
        Text(f"limit {digits(general.global_max_rps)}"),
        Text(f"{digits(general.bytes_per_s / 1e6)} MB/s"),
    ]
    work = [
        Text(f"{count(general.outstanding)} outstanding"),
        Text(
            f"{count(general.in_flight)} in flight ({count(general.sources_in_flight)} sources, "
            f"{count(general.domains_in_flight)} domains)"
        ),
        Text(f"{count(general.seeds_waiting - general.waiting)} seeds waiting"),
        *(
            [Text(f"{count(general.waiting)} beyond their sources' shares{_spilled(general)}")]
            if general.waiting
            else []
        ),
        Text(f"{count(general.dead)} dead letters"),
        Text(f"ETA {duration(general.eta_s) if general.eta_s != 0 else '-'}{_outside(general)}"),
    ]
    health = [
        Text(f"workers {general.workers}", ALARM if "workers" in general.trouble else ""),
        Text(
            f"sources {count(general.sources)}, {count(general.sources_in_progress)} with work, "
            f"{count(general.sources_due)} due"
        ),
        Text(f"Redis {digits(general.redis_bytes / 1e6)} MB"),
        *([Text(f"{count(halted)} halted", ALARM)] if halted else []),
        *([Text(f"{count(tripped)} open", ALARM)] if tripped else []),
        *([Text(f"{count(general.exclusions)} excluded")] if general.exclusions else []),
        Text(
            f"latency p50 {_seconds(general.latency_p50_s)}, p95 {_seconds(general.latency_p95_s)}, "
            f"p99 {_seconds(general.latency_p99_s)}"
        ),
        Text(
            f"fetch p50 {_seconds(general.fetch_p50_s)}, p95 {_seconds(general.fetch_p95_s)}, "
            f"p99 {_seconds(general.fetch_p99_s)}"
        ),
        *_parsing(general),
        *(Text(f"{kind} {number}", _WARNING) for kind, number in general.errors_now.items()),
    ]
    parts_of_lines = (speed, work, _links(general), health)
    lines = [line for parts in parts_of_lines for line in _flowing(parts, width)]
    if general.paused is not None:
        lines.append(Text(f"NOTHING GOES OUT: {printable(general.paused, 500)}", ALARM))
    for number, reason in list(general.shards_stopped.items())[:_MOST_SHARDS]:
        lines.append(Text(f"SHARD {number}: {printable(reason, 300)}", ALARM))
    if (more := len(general.shards_stopped) - _MOST_SHARDS) > 0:
        lines.append(Text(f"AND {more} MORE SHARDS", ALARM))
    return lines


def unit_of(spider: str) -> str:
    """Return what a spider is for, in the plural."""
    return spider if spider in {"images", "pages"} else "results"


def _links(general: General) -> list[Text]:
    """Return what became of links found on pages; nothing where there are none."""
    found = {
        "admitted": general.links_admitted,
        "known": general.links_known,
        "over budget": general.links_over_budget,
        "refused": general.links_refused,
        "excluded": general.links_excluded,
    }
    alarms = {"WITHOUT ROOM": general.links_without_room, "LOST": general.overflow_lost}
    if not any((*found.values(), *alarms.values())):
        return []
    return [
        Text(f"{digits(general.links_rps)} links/s"),
        *(Text(f"{count(number)} {what}") for what, number in found.items()),
        *(Text(f"{count(number)} {what}", ALARM) for what, number in alarms.items() if number),
    ]


def _budget(budget: Mapping[str, int | None] | None) -> str:
    """Return how many links a source has admitted, of how many; nothing where links have no budget."""
    if budget is None:
        return ""
    used, allowed = count(budget["admitted"] or 0), budget["allowed"]
    return used if allowed is None else f"{used}/{count(allowed)}"


def _spilled(general: General) -> str:
    return f" ({count(general.spilled)} spilled)" if general.spilled else ""


def _parsing(general: General) -> list[Text]:
    if general.parse_p50_s is None:
        return []
    parts = {"p50": general.parse_p50_s, "p95": general.parse_p95_s, "p99": general.parse_p99_s}
    return [Text("parse " + ", ".join(f"{name} {_seconds(value)}" for name, value in parts.items()))]


def _flowing(parts: Sequence[Text], width: int) -> list[Text]:
    """Return the parts in as few lines as possible; no part is split."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + 2 + part.cell_len <= width:
            lines[-1].append("  ").append_text(part)
        else:
            lines.append(part)
    return lines


def mark(source: Specific) -> str:
    """Return the state of a source's circuit, in capitals unless closed; `slowed` if closed below its limit."""
    if source.state != "closed":
        return source.state.upper().replace("_", " ")
    return "slowed" if source.trouble else source.state


def style_of(source: Specific) -> Style:
    """Return the style of its row."""
    if source.trouble:
        return ALARM if source.trouble == 3 else _WARNING
    return Style() if source.work or rate_of(source) else _QUIET


def rate_of(source: Specific) -> float | None:
    """Return the results a second, good and bad; None when that is not known."""
    if source.success_rps is None or source.error_rps is None or source.link_rot_rps is None:
        return None
    return source.success_rps + source.error_rps + source.link_rot_rps


def _pace(source: Specific) -> int:
    """Return its rate to sort by: below one a second it is chance whether an interval has a result."""
    return round(rate_of(source) or 0)


def statuses(counts: Mapping[str, int]) -> str:
    """Return how often each status came, the most frequent first."""
    return " ".join(f"{status}:{number}" for status, number in sorted(counts.items(), key=lambda item: -item[1]))


def count(number: int) -> str:
    """Return a number in at most five characters."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**5, "k")):
        if number >= size:
            return digits(number / (1000 if letter == "k" else size)) + letter
    return str(number)


def digits(value: float) -> str:
    """Return a number with three significant digits, or all its digits before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, the highest at its full height, 0 the lowest."""
    top = max(values, default=0.0)
    return "".join(_BARS[math.ceil(value / top * 7) if top > 0 else 0] for value in values)


def _outside(general: General) -> str:
    """Return what the ETA leaves out: seeds that are being fed."""
    if general.seeds_outside is None:
        return " + more being fed"
    return f" + about {count(general.seeds_outside)} seeds being fed" if general.seeds_outside else ""


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g} s"
