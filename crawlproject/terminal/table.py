"""A snapshot as people read it: some lines on the crawl, and a table of its sources.

All texts go through `printable` and into rich's `Text`, which reads no markup: names come from strangers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from crawlproject.status.snapshot import General, Snapshot, Specific
from crawlproject.status.source_status import duration
from crawlproject.texts import printable

_ALARM, _WARNING, _QUIET = "bold red", "yellow", "dim"

_NARROW = 100  # cells, below which the last two columns have no room

# Head, cell, and whether it is a text that is cut where there is no room
_Column = tuple[str, Callable[[str, Specific], str], bool]
_COLUMNS: Sequence[_Column] = (
    ("source", lambda name, source: name, True),
    ("state", lambda name, source: _state(source), False),
    ("limit", lambda name, source: digits(source.rate_limit), False),
    ("allowed", lambda name, source: digits(source.effective_rate), False),
    ("seen", lambda name, source: "-" if (rate := _rate(source)) is None else digits(rate), False),
    ("queued", lambda name, source: count(source.queued + source.waiting), False),
    ("in flight", lambda name, source: count(source.in_flight), False),
    ("done", lambda name, source: count(source.successful), False),
    ("failed", lambda name, source: count(source.failed), False),
    ("eta", lambda name, source: duration(source.eta_s) if source.eta_s != 0 else "-", False),
    ("last 50", lambda name, source: _statuses(source.last_50_statuses), True),
    ("reason", lambda name, source: source.reason, True),
)

SORTS: Mapping[str, Callable[[str, Specific], tuple[float, ...]]] = {
    "trouble": lambda name, source: (-source.trouble, -_pace(source), -source.work),
    "rate": lambda name, source: (-_pace(source), -source.work),
    "work": lambda name, source: (-source.work,),
    "failed": lambda name, source: (-(source.error_rps or 0), -source.failed),
    "eta": lambda name, source: (-(math.inf if source.eta_s is None else source.eta_s),),
    "name": lambda name, source: (),
}


class View:
    """The last snapshot, as rich renders it, `cut_off` at the terminal's height.

    `fault` says why there is no newer one.
    """

    def __init__(self, title: str, sort: str, *, cut_off: bool) -> None:
        self.title = title
        self.sort = sort
        self.cut_off = cut_off
        self.fault = ""
        self.snapshot: Snapshot | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self.snapshot
        moment = "reading ..." if shown is None else f"{shown.time[11:19]} UTC, over {shown.interval_s:.3g} s"
        lines = [Text(f"{self.title}  {moment}")]
        if self.fault:
            lines.append(Text(printable(self.fault, 500), _ALARM))
        if shown is not None:
            lines += header(shown)
        lines = [part for line in lines for part in line.wrap(console, options.max_width)]
        yield from lines
        if shown is None:
            return
        rows = sorted(shown.specific.items(), key=lambda row: (*SORTS[self.sort](*row), row[0]))
        room = max(options.max_height - len(lines) - 2, 0) if self.cut_off else len(rows)  # a head, a last line
        yield _table(rows[:room], _COLUMNS[:-2] if options.max_width < _NARROW else _COLUMNS)
        if (more := max(shown.general.sources_listed, len(rows)) - len(rows[:room])) > 0:
            yield Text(f"and {more} more")


def _table(rows: Sequence[tuple[str, Specific]], columns: Sequence[_Column]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    for head, _, is_text in columns:
        table.add_column(
            head,
            justify="left" if is_text or head == "state" else "right",
            no_wrap=not is_text,
            overflow="ellipsis",
        )
    for name, source in rows:
        cells = (printable(cell(name, source), 500) for _, cell, _ in columns)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells), style=_style(source))
    return table


def header(shown: Snapshot) -> list[Text]:
    """Return the lines above the table: how fast, how much, how healthy, and what stops the crawl."""
    general = shown.general
    halted, tripped = len(general.circuit_breaker_tripped), len(general.circuit_breaker_open)
    unit = shown.sample.spider if shown.sample.spider in {"images", "pages"} else "results"
    waiting = {
        "beyond their sources' shares": general.waiting,
        "spilled": general.spilled,
        "halted": halted,
        "open": tripped,
        "excluded": general.exclusions,
    }
    lines = [
        f"{digits(general.processing_rate)} {unit}/s  ok {digits(general.success_rps)}  errors "
        f"{digits(general.error_rps)}  retries {digits(general.retry_rps)}  limit "
        f"{digits(general.global_max_rps)}  {digits(general.bytes_per_s / 1e6)} MB/s  latency p50 "
        f"{_seconds(general.latency_p50_s)}, p99 {_seconds(general.latency_p99_s)}",
        f"workers {general.workers}  sources {count(general.sources)}, {count(general.sources_in_progress)} with "
        f"work  {count(general.outstanding)} outstanding  {count(general.in_flight)} in flight  "
        f"{count(general.seeds_waiting - general.waiting)} seeds waiting  {count(general.dead)} dead letters  ETA "
        f"{duration(general.eta_s) if general.eta_s != 0 else '-'}{_being_fed(general)}",
        "  ".join(f"{count(number)} {what}" for what, number in waiting.items() if number),
        "  ".join(f"{kind} {number}" for kind, number in general.errors_now.items()),
        _links(general),
    ]
    alarms = [f"NOTHING GOES OUT: {printable(general.paused, 500)}"] if general.paused is not None else []
    alarms += [f"SHARD {number}: {printable(reason, 300)}" for number, reason in general.shards_stopped.items()]
    alarms += [f"LOST {count(general.overflow_lost)} requests"] if general.overflow_lost else []
    return [Text(line) for line in lines if line] + [Text(line, _ALARM) for line in alarms]


def count(number: int) -> str:
    """Return a number in at most five characters."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**5, "k")):
        if number >= size:
            return digits(number / (1000 if letter == "k" else size)) + letter
    return str(number)


def digits(value: float) -> str:
    """Return a number with three significant digits, or all its digits before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _links(general: General) -> str:
    """Return what became of links found on pages; nothing where there are none."""
    found = {
        "admitted": general.links_admitted,
        "known": general.links_known,
        "over budget": general.links_over_budget,
        "without room": general.links_without_room,
        "refused": general.links_refused,
        "excluded": general.links_excluded,
    }
    if not any(found.values()):
        return ""
    return "  ".join(
        (f"{digits(general.links_rps)} links/s", *(f"{count(n)} {what}" for what, n in found.items()))
    )


def _being_fed(general: General) -> str:
    """Return what the ETA leaves out: seeds that are being fed."""
    if general.seeds_outside is None:
        return " + more being fed"
    return f" + about {count(general.seeds_outside)} seeds being fed" if general.seeds_outside else ""


def _state(source: Specific) -> str:
    """Return the state of a source's circuit, in capitals unless closed; `slowed` if closed below its limit."""
    if source.state != "closed":
        return source.state.upper().replace("_", " ")
    return "slowed" if source.trouble else source.state


def _style(source: Specific) -> str:
    if source.trouble:
        return _ALARM if source.trouble == 3 else _WARNING
    return "" if source.work or _rate(source) else _QUIET


def _rate(source: Specific) -> float | None:
    """Return the results a second, good and bad; None when that is not known."""
    if source.success_rps is None or source.error_rps is None or source.link_rot_rps is None:
        return None
    return source.success_rps + source.error_rps + source.link_rot_rps


def _pace(source: Specific) -> int:
    """Return its rate to sort by: below one a second it is chance whether an interval has a result."""
    return round(_rate(source) or 0)


def _statuses(counts: Mapping[str, int]) -> str:
    return " ".join(f"{status}:{number}" for status, number in sorted(counts.items(), key=lambda item: -item[1]))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g} s"
