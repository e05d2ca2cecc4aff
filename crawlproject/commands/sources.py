"""`scrapy sources`: the rate of each source, and why; what it has done, and what is left."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from crawlproject import cli
from crawlproject.program import as_called
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, shown
from crawlproject.state.source_table import known_sources
from crawlproject.status.source_status import (
    SourceRow,
    duration,
    pause,
    said_of_links,
    said_of_minimum,
    sample_sources,
    seen_on,
)
from crawlproject.texts import counted


class Command(cli.Command):
    """Show each source: its rate and the reason for it, its requests queued, in flight and done, the time left,
    and the hosts with results in the last minutes. For the spider pages, also the waiting requests
    that are in CRAWL_OVERFLOW_STORE, and the links that its budget has admitted. Without SOURCE: every source
    that the catalogue names or that a seed has led to.
    """

    arguments = "[options] [SOURCE...]"
    examples = ("scrapy sources --json",)
    spider_help = "the spider whose work to show"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        asyncio.run(self._print(cli.source_names(args), opts))

    async def _print(self, names: list[str], opts: argparse.Namespace) -> None:
        away: dict[State, str] | None = None if names else {}
        async with cli.opened_state(self, opts.spider) as state:
            if names:
                await cli.remark_unknown(state, names)
            else:
                known, away = await ask_shards(state.shards, known_sources, within_s=60.0)
                names = sorted({name for found in known.values() for name in found})
            rows = sample_sources(state, names, away)
            if opts.json:
                await _write_json(names, rows)
            else:
                await _write_table(names, rows, [*_COLUMNS, *_MORE.get(opts.spider, ("items",))])
            for shard, fault in (away or {}).items():
                cli.remark(f"{shown(shard)} does not answer, and its sources are missing here: {fault}")
            if not opts.json:
                await _print_pauses(state)


async def _print_pauses(state: State) -> None:
    """Say why nothing goes out, of which shards if there are several."""
    pauses, _ = await ask_shards(state.shards, pause)
    reasons: dict[str, list[str]] = {}
    for shard, one in pauses.items():
        if one.reason:
            reasons.setdefault(one.reason, []).append(str(shard.number))
    for reason, numbers in reasons.items():
        of = "" if len(numbers) == state.count else f" of shard {', '.join(numbers)}"
        cli.show(as_called(f"nothing goes out{of}: {reason}"))


async def _write_json(names: list[str], rows: AsyncIterator[SourceRow]) -> None:
    before = "["
    async for row in rows:
        print(before + json.dumps(row.public()), end="")
        before = ",\n "
    print("]" if names else "[]")


_COLUMNS = (
    *("limit rps", "now rps", "queued", "waiting", "delayed", "in flight", "successful", "failed", "state", "eta"),
)
_MORE = {"images": (), "pages": ("spilled", "links", "budget")}  # by spider; of others, items


def _cell(row: SourceRow, name: str) -> str:
    """Return the cell of a source in a column."""
    match name:
        case "limit rps":
            return f"{row.rate_limit:.4g}"
        case "now rps":
            return f"{row.effective_rate:.4g}"
        case "eta":
            return duration(row.eta_s) if row.eta_s != 0 else "-"
        case "links":
            return str(row.links.get("admitted", 0))
        case "budget":
            budget = row.budget or {}
            used, allowed = budget.get("admitted", 0), budget.get("allowed")
            return f"{used}" if allowed is None else f"{used}/{allowed}"
    return str(getattr(row, name.replace(" ", "_")))


async def _write_table(names: list[str], rows: AsyncIterator[SourceRow], columns: Sequence[str]) -> None:
    width = max(map(len, names), default=6)
    print(f"{'source':<{width}}", *(f"{name:>10}" for name in columns), " reason")
    slow: list[SourceRow] = []
    async for row in rows:
        slow += [row] if said_of_minimum([row]) else []
        cells = " ".join(f"{_cell(row, column):>10}" for column in columns)
        hosts, links = seen_on(row.hosts), said_of_links(row.links)
        more = [text for text in (links and f"links: {links}", hosts and f"responses from {hosts}") if text]
        cli.show(as_called(f"{row.source:<{width}} {cells}  {'; '.join([row.reason, *more])}"))
    print(counted(len(names), "source"))
    if remark := said_of_minimum(slow):
        cli.show(as_called(remark))
