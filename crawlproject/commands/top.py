"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import sys

from crawlproject import cli
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.snapshot_reader import SnapshotReader
from crawlproject.texts import one_line

SORTS = ("trouble", "rate", "work", "failed", "eta", "name")  # those of terminal/table.py

_WIDE = 2000  # columns where no terminal bounds them


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
    until q or Ctrl-C. It only reads: any number may run beside a crawl. If the output is not a terminal, it prints
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

            from crawlproject.terminal.live import View, watch

            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows the rest
            terminal = sys.stdout.isatty()
            console = Console(force_terminal=terminal, width=None if terminal else _WIDE, highlight=False)
            live = terminal and not opts.once and not console.is_dumb_terminal
            view = View(f"{opts.spider} of {state.config.namespace}", opts.sort, names, cut_off=live)
            if live:
                await watch(snapshot_reader, view, opts.interval)
                return
            view.show(await _snapshot(snapshot_reader, opts.interval))
            console.print(view)


async def _snapshot(snapshot_reader: SnapshotReader, interval: float) -> Snapshot:
    """Return what the crawl does during `interval` seconds."""
    while True:
        made = await snapshot_reader.look()
        if made is not None:
            return made
        await asyncio.sleep(interval)  # since the first look, or one that had other shards
