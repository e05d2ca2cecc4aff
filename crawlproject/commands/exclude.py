"""`scrapy exclude`: keeps the crawl away from domains and sources."""

from __future__ import annotations

import argparse
from typing import Any

from crawlproject import cli
from crawlproject.controls import exclude
from crawlproject.exclusions import is_domain
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import State
from crawlproject.texts import counted


class Command(cli.Question):
    """Send nothing more to the domains, with all hosts below them, and the sources: at once and in all workers,
    until scrapy include. Their queued requests are dropped, and so are seeds and redirects to come: counted, but
    without dead letters. A name without a dot is a source; one with a dot is both.
    """

    arguments = "[options] DOMAIN|SOURCE..."
    examples = ('scrapy exclude museum.example --reason "asked by mail"',)
    spider_help = "the spider whose work is dropped at once; that of others follows within seconds"
    is_of_one_spider = False
    check = staticmethod(cli.excluded_names)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--reason", default="", metavar="TEXT", help="the reason, for scrapy excluded and the audit trail"
        )

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, dict[str, int]]:
        dropped = await exclude(state, args, opts.reason.strip(), cli.operator(self))
        if sources := [name for name in args if not is_domain(name)]:
            for name in await cli.remark_unknown(state, sources):
                if "." in name:
                    cli.remark(f"{name} is not a domain: only the source of that name is excluded")
        elif len(args) == 1:  # of a name in two spellings, one is only a source's
            domain = domain_of_url(f"http://{args[0]}/")
            found = await state.shard_for(domain).scripts.attribute(None, domain)
            if not await cli.remark_unknown(state, [found.source]) and found.source != args[0]:
                cli.remark(
                    f"workers drop requests to {args[0]}, which wait under {found.source}, when their turn comes"
                )
        return {"excluded": dropped}

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        return "\n".join(
            f"{name} is excluded; {counted(count, 'queued request')} {'was' if count == 1 else 'were'} dropped"
            for name, count in said["excluded"].items()
        )
