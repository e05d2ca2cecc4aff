"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from scrapy.exceptions import UsageError

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
_NEEDS = {"reason": 110, "limit": 90, "eta": 70}  # the width of a terminal below which these are left out
_SOON_S = 1.0  # between the first two samples, and between two attempts while Redis fails
_ALARM = "bold red"
_STYLES = {3: _ALARM, 2: "yellow", 1: "yellow"}  # by how much a source is in trouble
_LINES = (
    "{processing_rate} results/s  ok {success_rps}  errors {error_rps}  limit {global_max_rps}  {megabytes} MB/s",
    "workers {workers}  sources {sources}  halted {halted}  ETA {eta}",
    "{outstanding} outstanding  {in_flight} in flight  {seeds_waiting} waiting  {dead} dead letters  "
    "{excluded} excluded",
)


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
        rates = "seconds over which rates are measured, from 0.5 to 3600 (default: 2)"
        parser.add_argument("--interval", type=float, default=2.0, metavar="S", help=rates)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not 0.5 <= opts.interval <= 3600:
            raise UsageError(f"--interval {opts.interval:g} must be a number of seconds from 0.5 to 3600")
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

    watching, made = asyncio.current_task(), None
    assert watching is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, watching.cancel)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped process would leave its screen behind
    live = Live(view(title, None), console=console, screen=True, refresh_per_second=2)
    with live, suppress(asyncio.CancelledError):
        while not watching.cancelling():  # redis-py can swallow a cancellation on Python 3.11
            try:
                made, fault = await reader.look() or made, ""
            except REDIS_TROUBLE as error:
                fault = f"{fault_of(error)} ({plain(error)})"
            live.update(view(title, made, fault, console.height, console.width))
            await asyncio.sleep(_SOON_S if fault or made is None else interval)


def view(
    title: str, shown: Snapshot | None, fault: str = "", most: int = sys.maxsize, width: int = _WIDE
) -> Group:
    """Return a snapshot as rich renders it: how the crawl is, and a row for each source, in `most` lines.

    `fault` says why there is no newer one. A narrow `width` has fewer columns, and cuts names. Texts go through
    `printable` and into rich's `Text`, which reads no markup: names come from strangers.
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
    told = {name: digits(value) if isinstance(value, float) else value for name, value in general.items()}
    told |= {"megabytes": digits(general["bytes_per_s"] / 1e6), "eta": duration(general["eta_s"])}
    told["halted"] = len(general["circuit_breaker_tripped"])
    lines = [f"{title}  {shown.time[11:19]} UTC, over {shown.interval_s:.3g} s"]
    lines += [text.format(**told) for text in _LINES]
    if remark := said_of_minimum(one.row for one in shown.sample.sources.values()):
        lines.append(remark)
    rows = sorted(
        shown.specific.items(), key=lambda row: (-row[1]["trouble"], -_seen(row[1]), -row[1]["work"], row[0])
    )
    kept = rows[: max(most - len(lines) - len(alarms) - 2, 0)]
    left_out = {head for head, least in _NEEDS.items() if width < least}
    left_out |= {"items"} if shown.sample.spider in {"images", "pages"} else set()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    for name, one in kept:
        cells = {head: cell for head, cell in _cells(name, one).items() if head not in left_out}
        for head in cells if not table.columns else ():
            justify: Literal["left", "right"] = "left" if head in {"source", "state", "reason"} else "right"
            table.add_column(head, justify=justify, no_wrap=head not in {"source", "reason"}, overflow="ellipsis")
        table.add_row(*map(line, cells.values()), style=_STYLES.get(one["trouble"], ""))
    more = max(general["sources_listed"], len(rows)) - len(kept)
    last = [line(f"and {more} more")] if more else []
    return Group(*map(line, lines), *(line(alarm, _ALARM) for alarm in alarms), table, *last)


def _seen(source: Mapping[str, Any]) -> float:
    """Return the results of a source a second, good and bad."""
    return sum(source[rate] or 0.0 for rate in ("success_rps", "error_rps", "link_rot_rps"))


def _cells(name: str, source: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a source."""
    is_slowed = source["state"] == "closed" and source["trouble"]
    state = source["state"] if source["state"] == "closed" else source["state"].upper().replace("_", " ")
    return {
        "source": name,
        "state": "slowed" if is_slowed else state,
        "limit": digits(source["rate_limit"]),
        "allowed": digits(source["effective_rate"]),
        "seen": digits(None if source["success_rps"] is None else _seen(source)),
        "queued": str(source["queued"] + source["waiting"]),
        "in flight": str(source["in_flight"]),
        "done": str(source["successful"]),
        "items": str(source["items"]),
        "failed": str(source["failed"]),
        "eta": duration(source["eta_s"]),
        "reason": source["reason"],
    }
