"""`scrapy stats`: the totals of the whole crawl."""

from __future__ import annotations

import argparse
import json
from typing import Any

from crawlproject import cli
from crawlproject.state.client import State
from crawlproject.status.totals import totals


class Command(cli.Question):
    """Print what all workers together have done since the crawl began: in total, and for each source."""

    examples = ("scrapy stats",)
    json_help = "accepted for consistency: the output is always JSON"
    spider_help = "the spider"
    indent = 2

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, Any]:
        return await totals(state)

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        return json.dumps(said, indent=2)
