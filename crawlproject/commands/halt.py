"""`scrapy halt`: stops sources until an operator resumes them."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, opened_state, remark_unknown, reports_errors, source_names
from crawlproject.controls import halt


class Command(ScrapyCommand):
    """Halts sources."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] SOURCE..."

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Stop asking sources, until scrapy resume"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Send nothing more to the sources, at once and in all workers, until scrapy resume; their work is "
            "kept. Example: scrapy halt citymuseum"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Halt them."""
        sources = source_names(args)
        if not sources:
            raise UsageError("which SOURCE?")
        asyncio.run(self._halt(sources))
        print(json.dumps({"halted": sources}) if opts.json else "\n".join(f"{name} is halted" for name in sources))

    async def _halt(self, sources: list[str]) -> None:
        async with opened_state(self) as state:
            await halt(state, sources)
            await remark_unknown(state, sources)
