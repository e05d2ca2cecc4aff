"""`scrapy halt`: stops sources until an operator resumes them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from crawlproject import cli
from crawlproject.controls import halt
from crawlproject.state.client import State


class Command(cli.Question):
    """Send nothing more to the sources, at once and in all workers, until scrapy resume; their work is kept."""

    arguments = "[options] SOURCE..."
    examples = ("scrapy halt citymuseum",)
    check = staticmethod(cli.some_sources)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--new", action="store_true", help="accept names that the crawl does not know yet")
        parser.add_argument(
            "--key",
            action="store_true",
            help="only print orders for redis-cli that do the same, with their keys",
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not opts.key:
            super().run(args, opts)
            return
        orders = [cli.redis_cli(self, source, "sadd", "halted", source) for source in self.check(args)]
        cli.show(json.dumps({"orders": orders}) if opts.json else "\n".join(orders))

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, list[str]]:
        if not opts.new:
            await cli.check_known(state, args, "; --new halts it in advance")
        await halt(state, args, cli.operator(self))
        return {"halted": args}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        return "\n".join(f"{name} is halted" for name in said["halted"])
