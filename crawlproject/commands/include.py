"""`scrapy include`: ends exclusions."""

from __future__ import annotations

import argparse
import asyncio
import json

from crawlproject import cli
from crawlproject.controls import include


class Command(cli.Command):
    """Crawl excluded domains and sources again. What was dropped stays dropped: feed it again, it is no duplicate.
    What CRAWL_EXCLUDE names is included again when its line is taken out of that file.
    """

    arguments = "[options] DOMAIN|SOURCE..."
    summary = "Crawl excluded domains and sources again"
    examples = ("scrapy include museum.example",)

    spider_help = "the spider whose dropped requests are no duplicates at once; those of others within seconds"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        included = asyncio.run(self._include(cli.excluded_names(args), opts.spider))
        names = {what: [name for name, now in included.items() if now == what] for what in _SAID}
        if opts.json:
            print(json.dumps({what.replace(" ", "_"): found for what, found in names.items()}))
        else:
            for name, what in included.items():
                cli.show(f"{name} {_SAID[what]}")
        self.exitcode = 1 if names["file"] else 0

    async def _include(self, names: list[str], spider: str) -> dict[str, str]:
        async with cli.opened_state(self, spider) as state:
            return await include(state, names, cli.operator(self))


_SAID = {
    "included": "is included again",
    "not excluded": "was not excluded",
    "file": "is still excluded: CRAWL_EXCLUDE names it, take its line out of that file",
}
