"""`scrapy include`: ends exclusions."""

from __future__ import annotations

import argparse
from typing import Any

from crawlproject import cli
from crawlproject.controls import include
from crawlproject.state.client import State

_SAID = {
    "included": "is included again",
    "not excluded": "was not excluded",
    "file": "is still excluded: CRAWL_EXCLUDE names it, take its line out of that file",
}


class Command(cli.Question):
    """Crawl excluded domains and sources again. Dropped requests stay dropped: feed them again, they are no
    duplicates. To include a name in CRAWL_EXCLUDE again, take its line out of that file.
    """

    arguments = "[options] DOMAIN|SOURCE..."
    examples = ("scrapy include museum.example",)
    spider_help = "the spider whose dropped requests are no duplicates at once; others follow within seconds"
    is_of_one_spider = False
    check = staticmethod(cli.excluded_names)

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, list[str]]:
        included = await include(state, args, cli.operator(self))
        self.exitcode = int("file" in included.values())
        return {key.replace(" ", "_"): [name for name, now in included.items() if now == key] for key in _SAID}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        return "\n".join(f"{name} {text}" for key, text in _SAID.items() for name in said[key.replace(" ", "_")])
