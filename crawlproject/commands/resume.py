"""`scrapy resume`: resumes halted sources."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import resume


class Command(cli.Command):
    """Resume sources that an operator, their circuit or Retry-After has halted or held: within two seconds, at
    their full rate, with nothing held against them. A robots.txt that requests a delay is fetched again.
    """

    arguments = "[options] SOURCE..."
    summary = "Resume halted sources, at their full rate"
    examples = ("scrapy resume citymuseum",)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        sources = cli.source_names(args)
        if not sources:
            raise UsageError("expected at least one SOURCE")
        resumed = asyncio.run(self._resume(sources))
        if opts.json:
            others = [name for name in sources if name not in resumed]
            print(json.dumps({"resumed": resumed, "not_halted": others}))
            return
        for name in sources:
            said = "has been resumed" if name in resumed else "was not halted; what slowed or held it is cleared"
            cli.show(f"{name} {said}")

    async def _resume(self, sources: list[str]) -> list[str]:
        """Return those that were halted."""
        async with cli.opened_state(self) as state:
            resumed = await resume(state, sources, cli.operator(self))
            await cli.remark_unknown(state, sources)
        return resumed
