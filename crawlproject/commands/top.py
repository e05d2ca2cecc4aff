"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from crawlproject import cli
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import fault_of, plain
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.snapshot_reader import SnapshotReader
from crawlproject.texts import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from crawlproject.terminal.table import View

SORTS = ("trouble", "rate", "work", "failed", "eta", "name")  # those of terminal/table.py

_WIDE = 2000  # columns where no terminal bounds them
_FIRST_S = 1.0  # at most, between the first two samples, and between two attempts while Redis fails


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.5 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0.5 to 3600")
    return seconds


class Command(cli.Command):
    """Show what the whole crawl is doing and the status of each source, those in trouble and the busiest first,
    until Ctrl-C. It only reads: any number may run beside a crawl. If the output is not a terminal, it prints
    one table. With SOURCE, it lists only those.
    """

    arguments = "[options] [SOURCE...]"
    summary = "Watch rates, errors and work of all sources, live in the terminal"
    examples = ("scrapy top", "scrapy top --sort failed", "scrapy top --json museum")
    json_help = "print one monitoring_update (docs/events.md) and exit"
    spider_help = "the spider whose work to show"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--once", action="store_true", help="print one table and exit")
        parser.add_argument(
            "--interval",
            type=_interval,
            default=2.0,
            metavar="S",
            help="seconds over which rates are measured (default: 2)",
        )
        parser.add_argument(
            "--sort",
            choices=SORTS,
            default="trouble",
            help="what comes first (default: trouble, then the fastest)",
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        asyncio.run(self._run(cli.source_names(args), opts))

    async def _run(self, names: list[str], opts: argparse.Namespace) -> None:
        async with cli.opened_state(self, opts.spider) as state:
            if names:
                await cli.remark_unknown(state, names)
            snapshot_reader = SnapshotReader(state, names)
            if opts.json:
                print(one_line((await _snapshot(snapshot_reader, opts.interval)).as_event()))
                return
            from rich.console import Console  # here: it would slow every command

            from crawlproject.terminal.table import View

            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows the rest
            terminal = sys.stdout.isatty()
            console = Console(force_terminal=terminal, width=None if terminal else _WIDE, highlight=False)
            live = terminal and not opts.once and not console.is_dumb_terminal
            view = View(f"{opts.spider} of {state.config.namespace}", opts.sort, cut_off=live)
            if live:
                await _watch(snapshot_reader, view, opts.interval, console)
                return
            view.snapshot = await _snapshot(snapshot_reader, opts.interval)
            console.print(view)


async def _watch(snapshot_reader: SnapshotReader, view: View, interval: float, console: Console) -> None:
    """Show a sample every `interval` seconds until Ctrl-C, SIGTERM or SIGHUP; while Redis fails, the last one."""
    from rich.live import Live

    left = asyncio.Event()
    looks = asyncio.ensure_future(_look(snapshot_reader, view, interval, left))

    def leave() -> None:
        left.set()  # besides: redis-py can swallow a cancellation on Python 3.11
        looks.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped process would leave its screen behind
    with Live(view, console=console, screen=True, refresh_per_second=2), suppress(asyncio.CancelledError):
        await looks


async def _look(snapshot_reader: SnapshotReader, view: View, interval: float, left: asyncio.Event) -> None:
    while not left.is_set():
        try:
            view.snapshot, view.fault = await snapshot_reader.look() or view.snapshot, ""
        except REDIS_TROUBLE as error:
            fault, detail = fault_of(error), plain(error)
            view.fault = fault if detail in fault else f"{fault} ({detail})"
        await asyncio.sleep(min(interval, _FIRST_S) if view.fault or view.snapshot is None else interval)


async def _snapshot(snapshot_reader: SnapshotReader, interval: float) -> Snapshot:
    """Return what the crawl does during `interval` seconds."""
    while True:
        made = await snapshot_reader.look()
        if made is not None:
            return made
        await asyncio.sleep(interval)  # since the first look, or one that had other shards
