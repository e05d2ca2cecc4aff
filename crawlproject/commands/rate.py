"""`scrapy rate`: sets a source's rate by hand."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, opened_state, remark, remark_unknown, reports_errors, source_names
from crawlproject.controls import set_rate
from crawlproject.sources.rates import MAXIMUM_RATE


class Command(ScrapyCommand):
    """Overrides the rate by size, or gives it back."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] SOURCE RPS|auto"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Set how many requests a second a source gets, or auto: by its size"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Set the rate of a source in requests a second, in force within two seconds; below 1 is fine (0.2: "
            "one each 5 s), 0 stops it, auto lets its size decide again. Example: scrapy rate citymuseum 0.5"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Set or delete the override."""
        if len(args) != 2:
            raise UsageError("SOURCE and RPS (or auto), please")
        [source], value = source_names(args[:1]), args[1].strip()
        rate = asyncio.run(self._set(source, value))
        if rate is not None and rate > MAXIMUM_RATE:
            remark(f"{rate:g} is more than the {MAXIMUM_RATE:g} requests a second of the largest sources")
        if opts.json:
            print(json.dumps({"source": source, "override": rate}))
        else:
            print(f"{source}: {'by size again' if rate is None else f'{rate:g} requests a second'}")

    async def _set(self, source: str, value: str) -> float | None:
        async with opened_state(self) as state:
            try:
                rate = await set_rate(state, source, value)
            except ValueError as error:
                raise UsageError(str(error)) from None
            await remark_unknown(state, [source])
            return rate
