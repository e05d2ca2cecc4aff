"""`scrapy exclude`: keeps the crawl away from domains and sources."""

from __future__ import annotations

import argparse
import asyncio
import json

from crawlproject import cli
from crawlproject.controls import exclude
from crawlproject.exclusions.names import is_domain


class Command(cli.Command):
    """Send nothing more to the domains, with all hosts below them, and the sources: at once and in all workers,
    until scrapy include. What is queued for them is dropped, and so are seeds and redirects to come: counted,
    but without dead letters. A name without a dot is a source; one with a dot is both.
    """

    arguments = "[options] DOMAIN|SOURCE..."
    summary = "Keep the crawl away from domains and sources, until scrapy include"
    examples = ('scrapy exclude museum.example --reason "asked by mail"',)

    spider_help = "the spider whose work is dropped at once; that of others is within seconds"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--reason", default="", metavar="TEXT", help="why, for scrapy excluded and the audit trail"
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        dropped = asyncio.run(self._exclude(cli.excluded_names(args), opts))
        if opts.json:
            print(json.dumps({"excluded": dropped}))
            return
        for name, count in dropped.items():
            cli.show(f"{name} is excluded" + (f"; {count} queued requests were dropped" if count else ""))

    async def _exclude(self, names: list[str], opts: argparse.Namespace) -> dict[str, int]:
        """Return how many requests of each were dropped."""
        async with cli.opened_state(self, opts.spider) as state:
            dropped = await exclude(state, names, opts.reason.strip(), cli.operator(self))
            if sources := [name for name in names if not is_domain(name)]:
                for name in await cli.remark_unknown(state, sources):
                    if "." in name:
                        cli.remark(f"{name} is not a domain: only the source of that name is excluded")
        return dropped
