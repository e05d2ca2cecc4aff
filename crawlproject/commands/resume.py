"""`scrapy resume`: lets halted sources go on."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import resume


class Command(cli.Command):
    """Let sources go on that were halted or held, by an operator, their circuit or Retry-After, within two
    seconds, at their full rate and with nothing held against them. Where a robots.txt asks for time between
    requests, it is fetched anew.
    """

    arguments = "[options] SOURCE..."
    summary = "Let halted sources go on, at their full rate"
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
            said = "is resumed" if name in resumed else "was not halted; what slowed or held it is cleared"
            print(f"{name} {said}")

    async def _resume(self, sources: list[str]) -> list[str]:
        """Return those that were halted."""
        async with cli.opened_state(self) as state:
            resumed = await resume(state, sources)
            await cli.remark_unknown(state, sources)
        return resumed
