"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import sys

from scrapy.commands import ScrapyCommand

from crawlproject.commands import QUIET, opened_state, remark_unknown, reports_errors, source_names
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


class Command(ScrapyCommand):
    """Shows the crawl."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] [SOURCE...]"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Watch rates, errors and work of all sources, live in the terminal"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Show what the whole crawl is doing and the status of each source, those in trouble and the busiest "
            "first, until q or Ctrl-C. It only reads: any number may run beside a crawl. If the output is not a "
            "terminal, one table is printed. With SOURCE, only those are listed. "
            "Examples: scrapy top; scrapy top --sort failed; scrapy top --json museum"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument(
            "--json", action="store_true", help="print one monitoring_update (docs/events.md) and exit"
        )
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
        parser.add_argument("--spider", default="images", help="the spider whose work to show (default: images)")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Show it, or print it once."""
        asyncio.run(self._run(source_names(args), opts))

    async def _run(self, names: list[str], opts: argparse.Namespace) -> None:
        async with opened_state(self, opts.spider) as state:
            if names:
                await remark_unknown(state, names)
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
    await snapshot_reader.look()
    await asyncio.sleep(interval)
    made = await snapshot_reader.look()
    assert made is not None
    return made
