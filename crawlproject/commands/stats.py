"""`scrapy stats`: the totals of the whole crawl."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from crawlproject import cli
from crawlproject.state.client import State
from crawlproject.state.scripts import LATENCY_BOUNDS, PARSE_BOUNDS
from crawlproject.state.source_counts import read_all_fetches
from crawlproject.status.histogram import quantile
from crawlproject.status.totals import histograms, totals


class Command(cli.Command):
    """Print what all workers together have done since the crawl began: in total, and for each source."""

    summary = "Print the totals of all workers as JSON"
    examples = ("scrapy stats",)
    json_help = "accepted for consistency: the output is always JSON"
    spider_help = "the spider"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        print(json.dumps(asyncio.run(self._read(opts.spider)), indent=2))

    async def _read(self, spider: str) -> dict[str, Any]:
        async with cli.opened_state(self, spider) as state:
            return await _stats(state)


async def _stats(state: State) -> dict[str, Any]:
    """Return the totals, with how long fetches took: in all since the crawl began, of each source lately."""
    said = await totals(state)
    sources = said.pop("sources")
    times = await histograms(state)
    lately: dict[str, list[int]] = {}
    for shard in state.shards:
        for name, row in (await read_all_fetches(shard)).items():
            lately[name] = [a + b for a, b in zip(lately[name], row, strict=True)] if name in lately else row
    for name, counts, bounds in (
        ("latency", times.latencies, LATENCY_BOUNDS),
        ("fetch", times.fetches, LATENCY_BOUNDS),
        ("parse", times.parses, PARSE_BOUNDS),
    ):
        said |= {f"{name}_p{percent}_s": quantile(percent / 100, counts, bounds) for percent in (50, 95, 99)}
    for name, row in sources.items():
        row |= {f"fetch_p{percent}_s": quantile(percent / 100, lately.get(name, ())) for percent in (50, 99)}
    return said | {"sources": sources}
