"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import io
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from crawlproject import cli
from crawlproject.program import as_called
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import fault_of, plain
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.source_status import digits, duration, said_of_minimum
from crawlproject.texts import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, Group

_WIDE = 2000  # columns where no terminal bounds them
_FIRST_S = 1.0  # at most, between the first two samples, and between two attempts while Redis fails
_ALARM = "bold red"
_SEEN = ("success_rps", "error_rps", "link_rot_rps")  # results a second, good and bad
_TEXTS = ("source", "state", "reason")
_DROPPED = ("reason", "limit", "eta")  # columns, the first first, where a terminal is too narrow for all
_SHORTEST = {"source": 20, "reason": 15}  # columns of the terminal to which these are cut
_STYLES = {3: _ALARM, 2: "yellow", 1: "yellow"}  # by how much a source is in trouble


def _interval(text: str) -> float:
    with suppress(ValueError):
        if 0.5 <= (seconds := float(text)) <= 3600:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0.5 to 3600")


class Command(cli.Command):
    """Show the rates and totals of the whole crawl and the status of each source, those in trouble first, then
    the fastest, until Ctrl-C. It only reads: run as many as you like. Without a terminal, it prints one table.
    With SOURCE, it lists only those.
    """

    arguments = "[options] [SOURCE...]"
    examples = ("scrapy top", "scrapy top --once", "scrapy top --json museum")
    json_help = "print one monitoring_update (docs/events.md) and exit"
    spider_help = "the spider whose work to show"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--once", action="store_true", help="print one table and exit")
        rates = "seconds over which rates are measured (default: 2)"
        parser.add_argument("--interval", type=_interval, default=2.0, metavar="S", help=rates)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        asyncio.run(self._run(cli.source_names(args), opts))

    async def _run(self, names: list[str], opts: argparse.Namespace) -> None:
        async with cli.opened_state(self, opts.spider) as state:
            if names:
                await cli.remark_unknown(state, names)
            reader = Survey(state, names)
            if opts.json:
                print(one_line((await _snapshot(reader, opts.interval)).as_event()))
                return
            from rich.console import Console  # here: it would slow every command

            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows the rest
            terminal = sys.stdout.isatty()
            console = Console(force_terminal=terminal, width=None if terminal else _WIDE, highlight=False)
            title = f"{opts.spider} of {state.config.namespace}"
            if terminal and not opts.once and not console.is_dumb_terminal:
                await _watch(reader, title, opts.interval, console)
            else:
                console.print(view(title, await _snapshot(reader, opts.interval), width=console.width))


async def _snapshot(reader: Survey, interval: float) -> Snapshot:
    """Return what the crawl does during `interval` seconds."""
    made = await reader.look()
    while made is None:  # the first look, or one that had other shards
        await asyncio.sleep(interval)
        made = await reader.look()
    return made


async def _watch(reader: Survey, title: str, interval: float, console: Console) -> None:
    """Show a sample every `interval` seconds until Ctrl-C, SIGTERM or SIGHUP; while Redis fails, the last one."""
    from rich.live import Live

    watching, left, made = asyncio.current_task(), asyncio.Event(), None
    assert watching is not None

    def leave() -> None:
        left.set()  # besides: redis-py can swallow a cancellation on Python 3.11
        watching.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped process would leave its screen behind
    live = Live(view(title, None), console=console, screen=True, refresh_per_second=2)
    with live, suppress(asyncio.CancelledError):
        while not left.is_set():
            try:
                made, fault = await reader.look() or made, ""
            except REDIS_TROUBLE as error:
                fault = f"{fault_of(error)} ({plain(error)})"
            live.update(view(title, made, fault, console.height, console.width))
            await asyncio.sleep(min(interval, _FIRST_S) if fault or made is None else interval)


def view(
    title: str, shown: Snapshot | None, fault: str = "", most: int = sys.maxsize, width: int = _WIDE
) -> Group:
    """Return a snapshot as rich renders it: how the crawl is, and a row for each source, in `most` lines.

    `fault` says why there is no newer one. Numbers are never cut: a narrow `width` has fewer columns. Texts go
    through `printable` and into rich's `Text`, which reads no markup: names come from strangers.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(printable(text, 500), style, no_wrap=not style, overflow="ellipsis")

    alarms = [fault] if fault else []
    if shown is None:
        return Group(line(f"{title}  reading ..."), *(line(alarm, _ALARM) for alarm in alarms))
    general = shown.general
    alarms += [as_called(f"NOTHING GOES OUT: {general['paused']}")] if general["paused"] is not None else []
    alarms += [as_called(f"SHARD {number}: {reason}") for number, reason in general["shards_stopped"].items()]
    alarms += [f"LOST {general['overflow_lost']} requests"] if general["overflow_lost"] else []
    lines = [f"{title}  {shown.time[11:19]} UTC, over {shown.interval_s:.3g} s"]
    lines += [
        f"{digits(general['processing_rate'])} results/s  ok {digits(general['success_rps'])}  "
        f"errors {digits(general['error_rps'])}  limit {digits(general['global_max_rps'])}  "
        f"{digits(general['bytes_per_s'] / 1e6)} MB/s",
        f"workers {general['workers']}  sources {general['sources']}  "
        f"halted {len(general['circuit_breaker_tripped'])}  ETA {duration(general['eta_s'])}",
        "{outstanding} outstanding  {in_flight} in flight  {seeds_waiting} waiting  {dead} dead letters  "
        "{excluded} excluded".format(**general),
    ]
    if remark := said_of_minimum(one.row for one in shown.sample.sources.values()):
        lines.append(remark)
    rows = [(name, one, sum(one[rate] or 0 for rate in _SEEN)) for name, one in shown.specific.items()]
    rows.sort(key=lambda row: (-row[1]["trouble"], -row[2], -row[1]["work"], row[0]))
    kept = rows[: max(most - len(lines) - len(alarms) - 2, 0)]
    cells = [_cells(*row, with_items=shown.sample.spider not in {"images", "pages"}) for row in kept]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    heads = _columns(cells, width)
    for head in heads:
        justify: Literal["left", "right"] = "left" if head in _TEXTS else "right"
        table.add_column(head, justify=justify, no_wrap=head not in _SHORTEST, overflow="ellipsis")
    for (_, one, _), cell in zip(kept, cells, strict=True):
        table.add_row(*(line(cell[head]) for head in heads), style=_STYLES.get(one["trouble"], ""))
    more = max(general["sources_listed"], len(rows)) - len(kept)
    last = [line(f"and {more} more")] if more else []
    return Group(*map(line, lines), *(line(alarm, _ALARM) for alarm in alarms), table, *last)


def _columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the columns of `rows` that a terminal of `width` shows in full, but for long names and reasons."""
    widths = {
        head: min(max(len(head), *(len(row[head]) for row in rows)), _SHORTEST.get(head, width))
        for head in (rows[0] if rows else ())
    }
    for head in _DROPPED:
        if sum(widths.values()) + len(widths) - 1 > width:
            widths.pop(head, None)
    return list(widths)


def _cells(name: str, source: Mapping[str, Any], seen: float, *, with_items: bool) -> dict[str, str]:
    """Return the columns of a source."""
    is_slowed = source["state"] == "closed" and source["trouble"]
    state = source["state"] if source["state"] == "closed" else source["state"].upper().replace("_", " ")
    return {
        "source": name,
        "state": "slowed" if is_slowed else state,
        "limit": digits(source["rate_limit"]),
        "allowed": digits(source["effective_rate"]),
        "seen": digits(None if source["success_rps"] is None else seen),
        "queued": str(source["queued"] + source["waiting"]),
        "in flight": str(source["in_flight"]),
        "done": str(source["successful"]),
        **({"items": str(source["items"])} if with_items else {}),
        "failed": str(source["failed"]),
        "eta": duration(source["eta_s"]),
        "reason": source["reason"],
    }
