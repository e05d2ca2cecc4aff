"""`scrapy sources`: the rate of each source, and why; what it has done, and what is left."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable

from crawlproject import cli
from crawlproject.state.source_table import known_sources
from crawlproject.status.source_status import SourceRow, duration, pause, seen_on, source_statuses
from crawlproject.texts import counted


class Command(cli.Command):
    """Show the rate of each source and the reason for it, what is queued, in flight and done, how long the rest
    will take, and on which hosts it was seen in the last minutes. Without SOURCE: every source that the catalogue
    names or that a seed has led to.
    """

    arguments = "[options] [SOURCE...]"
    summary = "Show the rate, state and work of each source"
    examples = ("scrapy sources --json",)
    spider_help = "the spider whose work to show"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        asyncio.run(self._print(cli.source_names(args), opts))

    async def _print(self, names: list[str], opts: argparse.Namespace) -> None:
        async with cli.opened_state(self, opts.spider) as state:
            if names:
                await cli.remark_unknown(state, names)
            else:
                names = await known_sources(state)
            write = _write_json if opts.json else _write_table
            await write(names, (row async for _, row in source_statuses(state, names)))
            if not opts.json and (reason := (await pause(state)).reason):
                cli.show(f"nothing goes out: {reason}")


async def _write_json(names: list[str], rows: AsyncIterator[SourceRow]) -> None:
    before = "["
    async for row in rows:
        print(before + json.dumps(row._asdict()), end="")
        before = ",\n "
    print("]" if names else "[]")


_COLUMNS: dict[str, Callable[[SourceRow], str]] = {
    "limit rps": lambda row: f"{row.rate_limit:.4g}",
    "now rps": lambda row: f"{row.effective_rate:.4g}",
    "queued": lambda row: str(row.queued),
    "waiting": lambda row: str(row.waiting),
    "delayed": lambda row: str(row.delayed),
    "in flight": lambda row: str(row.in_flight),
    "successful": lambda row: str(row.successful),
    "failed": lambda row: str(row.failed),
    "state": lambda row: row.state,
    "eta": lambda row: duration(row.eta_s) if row.eta_s != 0 else "-",
}


async def _write_table(names: list[str], rows: AsyncIterator[SourceRow]) -> None:
    width = max(map(len, names), default=6)
    print(f"{'source':<{width}}", *(f"{name:>10}" for name in _COLUMNS), " reason")
    async for row in rows:
        cells = " ".join(f"{cell(row):>10}" for cell in _COLUMNS.values())
        hosts = seen_on(row.hosts)
        cli.show(f"{row.source:<{width}} {cells}  {row.reason}" + (f"; seen on {hosts}" if hosts else ""))
    print(counted(len(names), "source"))
