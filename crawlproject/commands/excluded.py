"""`scrapy excluded`: lists what is excluded."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.exclusions.stored import ExcludedName, excluded_names
from crawlproject.texts import scrapy_command


class Command(cli.Command):
    """List the domains and sources that nothing goes out to: since when, by whom and why. What CRAWL_EXCLUDE names
    has the comment in its line as the reason.
    """

    arguments = "[options]"
    summary = "List excluded domains and sources"
    examples = ("scrapy excluded",)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args:
            raise UsageError(f"expected no arguments; did you mean {scrapy_command('exclude', of=args)}")
        found = asyncio.run(self._excluded())
        if opts.json:
            print(json.dumps([one._asdict() for one in found], indent=2))
            return
        width = max((len(one.name) for one in found), default=0)
        for one in found:
            file = "CRAWL_EXCLUDE" if one.in_file and one.by != "CRAWL_EXCLUDE" else ""
            said = ", ".join(part for part in (one.time, one.by, file) if part)
            cli.show(f"{one.name:<{width}}  {said}" + (f": {one.reason}" if one.reason else ""))
        print(f"{len(found)} excluded")

    async def _excluded(self) -> list[ExcludedName]:
        async with cli.opened_state(self) as state:
            return await excluded_names(state)
