"""`scrapy reshard`: divides a crawl among the shards of a Redis Cluster."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader

from crawlproject import cli, config
from crawlproject.config import Config, cluster_address
from crawlproject.errors import ConfigError
from crawlproject.frontier.division import Divided, GivenUp, Plan, begun, divide, give_up, plan
from crawlproject.texts import counted


class Command(cli.Command):
    """Divide a crawl that outgrows its Redis among N shards of a Redis Cluster (CRAWL_SHARDS). REDIS_URL says
    where it is: on one Redis, and then --on where it is to be, or in one shard of a Redis Cluster. Stop its
    workers, monitors, feeds and readers before; nobody can start there while it is copied. Nothing is taken away
    where it was, and what was seen is not fetched again. If it breaks off, run it again; or --give-up, with the
    same --on: it takes away what was copied so far, and the crawl goes on where it was.
    """

    arguments = "(--to N [--dry-run] | --give-up) [--on redis+cluster://HOST:PORT]"
    summary = "Divide a crawl among the shards of a Redis Cluster"
    examples = (
        "scrapy reshard --to 16 --on redis+cluster://node1:7000,node2:7000 --dry-run",
        "scrapy reshard --to 16 --on redis+cluster://node1:7000,node2:7000",
        "scrapy reshard --give-up --on redis+cluster://node1:7000,node2:7000",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--to", type=int, metavar="N", help="the number of shards: a power of two, 256 at most"
        )
        parser.add_argument("--on", metavar="URL", help="the Redis Cluster; by default that of REDIS_URL")
        parser.add_argument(
            "--dry-run", action="store_true", help="only say how long the crawl would have to stop, about"
        )
        parser.add_argument(
            "--give-up", action="store_true", help="take away what a division that broke off has copied"
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args:
            raise UsageError("expected no arguments")
        if opts.give_up and (opts.to is not None or opts.dry_run):
            raise UsageError("--give-up goes with neither --to nor --dry-run")
        if opts.to is None and not opts.give_up:
            raise UsageError("expected --to N, or --give-up")
        assert self.settings is not None
        here = self._undivided()
        there = self._divided(here, begun(here) if opts.give_up else opts.to, opts.on)
        if opts.give_up:
            given_up = give_up(here, there)
            cli.show(json.dumps(asdict(given_up), indent=2) if opts.json else _given_up(given_up))
            return
        project = get_spider_loader(self.settings).list()
        if opts.dry_run:
            found = plan(here, there, project)
            cli.show(json.dumps(asdict(found), indent=2) if opts.json else _planned(found, opts.to))
            return
        done = divide(here, there, project, cli.remark)
        cli.show(json.dumps(asdict(done), indent=2) if opts.json else _for_people(done, there))

    def _undivided(self) -> Config:
        """Return the settings of the crawl as it is.

        Raises:
            UsageError: it has several shards.
            ConfigError: a setting is invalid.

        """
        assert self.settings is not None
        here = config.load(self.settings)
        if here.shards > 1:
            raise UsageError(
                f"CRAWL_SHARDS={here.shards}: a crawl is divided once, and the Redis Cluster moves its shards "
                "from node to node. For a crawl of one shard leave CRAWL_SHARDS out until it is divided"
            )
        return here

    def _divided(self, here: Config, count: int, url: str | None) -> Config:
        """Return the settings of the crawl as it is to be.

        Raises:
            UsageError: it cannot be so.

        """
        assert self.settings is not None
        if count < 2:
            raise UsageError(f"--to {count}: a crawl is divided among 2 shards or more")
        settings = self.settings.copy()
        settings.set("REDIS_URL", url or here.redis_url, priority="cmdline")
        settings.set("CRAWL_SHARDS", count, priority="cmdline")
        try:
            there = config.load(settings)
        except ConfigError as error:
            raise UsageError(str(error).replace("CRAWL_SHARDS=", "--to ").replace("REDIS_URL=", "--on ")) from None
        if cluster_address(there.redis_url or "") is None:
            raise UsageError(
                "shards need a Redis Cluster: name some of its nodes, as in --on redis+cluster://host:7000"
            )
        return there


def _planned(found: Plan, count: int) -> str:
    return (
        f"{', '.join(found.spiders) or 'nothing'}: {found.redis_bytes / 1e6:.0f} MB in Redis would be copied into "
        f"{count} shards in about {_shown(found.seconds)}"
    )


def _given_up(done: GivenUp) -> str:
    return (
        f"The division into {done.shards} shards is given up, and {counted(done.keys, 'key')} of theirs deleted. "
        "The crawl goes on where it was, with the settings that it had."
    )


def _for_people(done: Divided, there: Config) -> str:
    lines = [
        f"{counted(done.sources, 'source')}, {counted(done.seeds, 'seed')}, {counted(done.requests, 'request')}, "
        f"{counted(done.events, 'event')} and {counted(done.dead_letters, 'dead letter')} of "
        f"{', '.join(done.spiders) or 'no spider'} are in {done.shards} shards, after {_shown(done.seconds)}.",
        f"Go on with CRAWL_SHARDS={done.shards} and REDIS_URL to that Redis Cluster. What was copied is still "
        "where it was, and nobody can crawl with it there.",
    ]
    if done.folders:
        lines.append(
            f"Packs in {', '.join(done.folders)} of CRAWL_OVERFLOW_STORE are read by all shards now, and no "
            "longer removed: remove these folders when the crawl has ended."
        )
    if done.left:
        shown = ", ".join(done.examples) + (", ..." if done.left > len(done.examples) else "")
        lines.append(f"{counted(done.left, 'key')} of no meaning to crawlproject stayed there: {shown}")
    return "\n".join(lines)


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
