"""`scrapy halt`: stops sources until an operator resumes them."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import halt


class Command(cli.Command):
    """Send nothing more to the sources, at once and in all workers, until scrapy resume; their work is kept."""

    arguments = "[options] SOURCE..."
    summary = "Stop requests to sources, until scrapy resume"
    examples = ("scrapy halt citymuseum",)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--key",
            action="store_true",
            help="only print orders for redis-cli that do the same, with their keys",
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        sources = cli.source_names(args)
        if not sources:
            raise UsageError("expected at least one SOURCE")
        if opts.key:
            orders = [cli.redis_cli(self, source, "sadd", "halted", source) for source in sources]
            cli.show(json.dumps({"orders": orders}) if opts.json else "\n".join(orders))
            return
        asyncio.run(self._halt(sources))
        cli.show(
            json.dumps({"halted": sources}) if opts.json else "\n".join(f"{name} is halted" for name in sources)
        )

    async def _halt(self, sources: list[str]) -> None:
        async with cli.opened_state(self) as state:
            await halt(state, sources, cli.operator(self))
            await cli.remark_unknown(state, sources)
