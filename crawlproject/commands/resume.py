"""`scrapy resume`: resumes halted sources."""

from __future__ import annotations

import argparse
from typing import Any

from crawlproject import cli
from crawlproject.controls import resume
from crawlproject.state.client import State


class Command(cli.Question):
    """Resume sources that an operator, their circuit or Retry-After has halted or held: within two seconds, at
    their full rate, with nothing held against them. A robots.txt that requests a delay is fetched again.
    """

    arguments = "[options] SOURCE..."
    examples = ("scrapy resume citymuseum",)
    check = staticmethod(cli.some_sources)

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, list[str]]:
        await cli.check_known(state, args)
        resumed = await resume(state, args, cli.operator(self))
        return {"resumed": resumed, "not_halted": [name for name in args if name not in resumed]}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        lines = [f"{name} has been resumed" for name in said["resumed"]]
        lines += [f"{name} was not halted; whatever slowed or held it is cleared" for name in said["not_halted"]]
        return "\n".join(lines)
