"""`scrapy stats`: the totals of the whole crawl."""

from __future__ import annotations

import argparse
import json

from crawlproject import cli
from crawlproject.state.totals import totals


class Command(cli.Command):
    """Print what all workers together have done since the crawl began: in total, and for each source."""

    summary = "Print the totals of all workers as JSON"
    examples = ("scrapy stats",)
    json_help = "accepted for consistency: the output is always JSON"
    spider_help = "the spider"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        with cli.connected(self, opts.spider) as state:
            print(json.dumps(totals(state), indent=2))
