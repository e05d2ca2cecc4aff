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

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        sources = cli.source_names(args)
        if not sources:
            raise UsageError("expected at least one SOURCE")
        asyncio.run(self._halt(sources))
        cli.show(
            json.dumps({"halted": sources}) if opts.json else "\n".join(f"{name} is halted" for name in sources)
        )

    async def _halt(self, sources: list[str]) -> None:
        async with cli.opened_state(self) as state:
            await halt(state, sources, cli.operator(self))
            await cli.remark_unknown(state, sources)
