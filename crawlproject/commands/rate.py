"""`scrapy rate`: overrides a source's rate."""

from __future__ import annotations

import argparse
import json
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.controls import set_rate
from crawlproject.sources.rates import MAXIMUM_RATE, MINIMUM_RATE, OVER_ROBOTS
from crawlproject.state.client import State
from crawlproject.texts import scrapy_command


class Command(cli.Question):
    """Set the rate of a source in requests a second, within two seconds in all workers. It may be below 1 (0.2:
    one every 5 s); 0 stops the source; with auto its size decides again. A Crawl-delay in its robots.txt still
    binds, unless --over-robots lifts it, until the next scrapy rate of the source.
    """

    arguments = "[options] SOURCE RPS|auto"
    examples = ("scrapy rate citymuseum 0.5", "scrapy rate citymuseum 10 --over-robots")

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--over-robots", action="store_true", help="lift the Crawl-delay that its robots.txt asks for"
        )
        parser.add_argument("--new", action="store_true", help="accept a name that the crawl does not know yet")
        parser.add_argument(
            "--key",
            action="store_true",
            help="only print an order for redis-cli that does the same, with its key",
        )

    @staticmethod
    def check(args: list[str]) -> list[str]:
        if len(args) != 2:
            raise UsageError("expected SOURCE and RPS (or auto)")
        return [*cli.source_names(args[:1]), args[1].strip()]

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not opts.key:
            super().run(args, opts)
            return
        source, value = self.check(args)
        if value == "auto":
            order = cli.redis_cli(self, source, "del", "override_rate_of")
        else:
            limit = f"{value} {OVER_ROBOTS}" if opts.over_robots else value
            order = cli.redis_cli(self, source, "set", "override_rate_of", limit)
        cli.show(json.dumps({"source": source, "order": order}) if opts.json else order)

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, Any]:
        source, value = args
        if value == "auto" and opts.over_robots:
            raise UsageError("--over-robots expects RPS: by size, a Crawl-delay always binds")
        if not opts.new:
            await cli.check_known(state, [source], "; --new sets its rate in advance")
        shard = state.shard_for(source)
        try:
            rate = await set_rate(state, source, value, cli.operator(self), over_robots=opts.over_robots)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if rate is not None and rate > MAXIMUM_RATE:
            cli.remark(f"{rate:g} is more than the {MAXIMUM_RATE:g} requests a second of the largest sources")
        if rate is not None and (await shard.scripts.attribute(source, None)).kind == "domain":
            cli.remark(
                f"{source} is not in the catalogue: this rate applies to its URLs only, "
                "not to seeds with this source and a URL elsewhere"
            )
        [status] = await shard.scripts.inspect([source])
        by_size = MINIMUM_RATE if status.by_size is None else status.by_size
        delay, wanted = status.robots_delay, by_size if rate is None else rate
        if delay and wanted * delay > 1 and not opts.over_robots:
            lift = scrapy_command("rate", "--over-robots", of=[source, "RPS" if rate is None else value])
            cli.remark(f"the Crawl-delay of {delay:g} s in its robots.txt binds; to lift it: {lift}")
        return {"source": source, "override": rate, "over_robots": opts.over_robots, "crawl_delay": delay}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        over, rate = ", over its robots.txt" if opts.over_robots else "", said["override"]
        return f"{said['source']}: {'by size again' if rate is None else f'{rate:g} requests a second{over}'}"
