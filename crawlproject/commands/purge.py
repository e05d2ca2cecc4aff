"""`scrapy purge`: empties the queue of a source."""

from __future__ import annotations

import argparse
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import purge, purgeable
from crawlproject.state.client import State
from crawlproject.texts import scrapy_command


class Command(cli.Question):
    """With --yes, drop the waiting requests of a source: queued, delayed, and beyond its window; without it, say
    how many there are. They are counted, but leave no dead letters; fed again they are no duplicates. Requests in
    flight end as usual, and seeds still in the list are crawled: scrapy exclude stops these, too.
    """

    arguments = "[options] SOURCE"
    examples = ("scrapy purge citymuseum --yes",)
    spider_help = "the spider whose work is dropped"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--yes", action="store_true", help="drop them")

    @staticmethod
    def check(args: list[str]) -> list[str]:
        if len(sources := cli.source_names(args)) != 1:
            raise UsageError("expected exactly one SOURCE")
        return sources

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, Any]:
        await cli.remark_unknown(state, args)
        dropped = await purge(state, args[0], cli.operator(self)) if opts.yes else 0
        return {"source": args[0], "waiting": await purgeable(state, args[0]), "purged": dropped}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        source = said["source"]
        if opts.yes:
            return f"{said['purged']} requests of {source} were dropped"
        drop = scrapy_command("purge", "--yes", spider=opts.spider, of=[source])
        return f"{said['waiting']} requests of {source} wait; to drop them: {drop}"
