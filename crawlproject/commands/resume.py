"""`scrapy resume`: lets halted sources go on."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, opened_state, remark_unknown, reports_errors, source_names
from crawlproject.controls import resume


class Command(ScrapyCommand):
    """Resumes sources."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] SOURCE..."

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Let halted sources go on, at their full rate"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Let sources go on that were halted or held, by an operator, their circuit or Retry-After, within "
            "two seconds, at their full rate and with nothing held against them. Where a robots.txt asks for time "
            "between requests, it is fetched anew. Example: scrapy resume citymuseum"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Resume them."""
        sources = source_names(args)
        if not sources:
            raise UsageError("which SOURCE?")
        resumed = asyncio.run(self._resume(sources))
        if opts.json:
            others = [name for name in sources if name not in resumed]
            print(json.dumps({"resumed": resumed, "not_halted": others}))
            return
        for name in sources:
            print(
                f"{name} goes on"
                if name in resumed
                else f"{name} was not halted; what slowed or held it is cleared"
            )

    async def _resume(self, sources: list[str]) -> list[str]:
        """Return those that were halted."""
        async with opened_state(self) as state:
            resumed = await resume(state, sources)
            await remark_unknown(state, sources)
        return resumed
