"""`scrapy stats`: the totals of the whole crawl."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from crawlproject import cli
from crawlproject.status.totals import totals


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
            return await totals(state)
