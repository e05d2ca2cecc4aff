"""`scrapy purge`: empties the queue of a source."""

from __future__ import annotations

import argparse
import asyncio
import json

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import purge, purgeable
from crawlproject.texts import scrapy_command


class Command(cli.Command):
    """Drop what waits of a source: queued, delayed, and beyond its share. With --yes only; without it, say how
    many requests that would be. They are counted, but leave no dead letters; fed again they are no duplicates.
    What is in flight ends as usual, and seeds still in the list are crawled: scrapy exclude stops these, too.
    """

    arguments = "[options] SOURCE"
    summary = "Empty the queue of a source"
    examples = ("scrapy purge citymuseum --yes",)
    spider_help = "the spider whose work is dropped"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--yes", action="store_true", help="do it")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        sources = cli.source_names(args)
        if len(sources) != 1:
            raise UsageError("expected exactly one SOURCE")
        waiting, dropped = asyncio.run(self._purge(sources[0], opts))
        if opts.json:
            print(json.dumps({"source": sources[0], "waiting": waiting, "purged": dropped}))
        elif opts.yes:
            cli.show(f"{dropped} requests of {sources[0]} were dropped")
        else:
            drop = scrapy_command("purge", "--yes", spider=opts.spider, of=sources)
            cli.show(f"{waiting} requests of {sources[0]} wait; to drop them: {drop}")

    async def _purge(self, source: str, opts: argparse.Namespace) -> tuple[int, int]:
        """Return how many requests wait, and how many were dropped."""
        async with cli.opened_state(self, opts.spider) as state:
            await cli.remark_unknown(state, [source])
            dropped = await purge(state, source, cli.operator(self)) if opts.yes else 0
            return await purgeable(state, source), dropped
