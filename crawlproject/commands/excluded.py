"""`scrapy excluded`: lists what is excluded."""

from __future__ import annotations

import argparse
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.exclusions import excluded_names
from crawlproject.state.client import State
from crawlproject.texts import scrapy_command


class Command(cli.Question):
    """List the excluded domains and sources: since when, by whom and why. The reason of a line in CRAWL_EXCLUDE
    is its comment.
    """

    examples = ("scrapy excluded",)
    indent = 2

    @staticmethod
    def check(args: list[str]) -> list[str]:
        if args:
            raise UsageError(f"expected no arguments; did you mean {scrapy_command('exclude', of=args)}")
        return args

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> list[dict[str, Any]]:
        return [one._asdict() for one in await excluded_names(state)]

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        rows = []
        for one in said:
            file = "CRAWL_EXCLUDE" if one["in_file"] and one["by"] != "CRAWL_EXCLUDE" else ""
            about = ", ".join(filter(None, (one["time"], one["by"], file)))
            rows.append((one["name"], about + (f": {one['reason']}" if one["reason"] else "")))
        return "\n".join([*cli.in_columns(rows), f"{len(said)} excluded"])
