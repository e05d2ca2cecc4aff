"""`scrapy rate`: overrides a source's rate."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import set_rate
from crawlproject.sources.rates import MAXIMUM_RATE


class Command(cli.Command):
    """Set the rate of a source in requests a second; it takes effect within two seconds. It may be below 1 (0.2:
    one every 5 s); 0 stops the source, auto lets its size decide again.
    """

    arguments = "[options] SOURCE RPS|auto"
    summary = "Set a source's rate in requests a second, or auto: by its size"
    examples = ("scrapy rate citymuseum 0.5",)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 2:
            raise UsageError("expected SOURCE and RPS (or auto)")
        [source], value = cli.source_names(args[:1]), args[1].strip()
        rate = asyncio.run(self._set(source, value))
        if rate is not None and rate > MAXIMUM_RATE:
            cli.remark(f"{rate:g} is more than the {MAXIMUM_RATE:g} requests a second of the largest sources")
        if opts.json:
            print(json.dumps({"source": source, "override": rate}))
        else:
            print(f"{source}: {'by size again' if rate is None else f'{rate:g} requests a second'}")

    async def _set(self, source: str, value: str) -> float | None:
        async with cli.opened_state(self) as state:
            try:
                rate = await set_rate(state, source, value, cli.operator(self))
            except ValueError as error:
                raise UsageError(str(error)) from None
            await cli.remark_unknown(state, [source])
            return rate
