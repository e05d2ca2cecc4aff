"""`scrapy feed`: puts files of seeds, or those of a Kafka topic, into the seed list."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import redis
from redis import Redis
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, connected, reports_errors, stoppable
from crawlproject.ingest import files as feedfile
from crawlproject.ingest.topic import SeedTopic
from crawlproject.kafka import Kafka

_BATCH = 1000
_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there

# What keeps Redis from taking seeds of a topic for a while; they wait in Kafka.
_PASSING = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.OutOfMemoryError, redis.ReadOnlyError)


class Command(ScrapyCommand):
    """Feeds the crawl."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] FILE... | --kafka"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Put seeds from files or Kafka into the crawl"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Put seeds into the crawl from TSV or CSV files with a header (url; identifier or uuid, source, "
            "priority, again where known), JSON lines or plain lists of URLs, gzipped or not; - is stdin. "
            "With --kafka, put in those of a topic as they come, as long as there is room, until Ctrl-C. "
            "Examples: scrapy feed museum.tsv flickr.jsonl.gz; scrapy feed --kafka"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--spider", default="images", help="the spider to feed (default: images)")
        parser.add_argument("--json", action="store_true", help="say as JSON how many were fed")
        parser.add_argument("--kafka", action="store_true", help="read a topic of Kafka, at CRAWL_KAFKA_BROKERS")
        parser.add_argument("--topic", help="which one (default: inbound_SPIDER)")
        parser.add_argument("--group", help="the consumer group to join (default: NAMESPACE-SPIDER)")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Feed one file after the other; a file that cannot be read ends it, with what was fed said."""
        if opts.kafka:
            if args:
                raise UsageError("FILEs or --kafka, not both")
            self._feed_topic(opts)
            return
        if opts.topic or opts.group:
            raise UsageError("--topic and --group go with --kafka")
        if not args:
            raise UsageError("which FILE? (- for stdin, --kafka for a topic)")
        _, client, keys = connected(self, opts.spider)
        fed = rejected = 0
        batch: list[str] = []
        total = sum(Path(name).stat().st_size for name in args if name != "-")
        from crawlproject.terminal.progress import Bar  # here: rich would slow every command

        bar = Bar("feeding", total or None)
        try:
            with bar:
                for name in args:
                    for line in feedfile.read(name, bar):
                        if line.seed is None:
                            rejected += 1
                            bar.say(f"{name}:{line.number}: {line.reason}")
                            continue
                        batch.append(line.seed)
                        if len(batch) >= _BATCH:
                            fed += _push(client, keys.seeds, batch)
                fed += _push(client, keys.seeds, batch)
        finally:
            told = {"fed": fed, "rejected": rejected}
            print(json.dumps(told) if opts.json else f"{fed} seeds fed, {rejected} rejected")
        if rejected and not fed:
            self.exitcode = 1

    def _feed_topic(self, opts: argparse.Namespace) -> None:
        config, client, keys = connected(self, opts.spider)
        fed = 0
        from crawlproject.terminal.progress import Bar  # here: rich would slow every command

        bar = Bar("feeding", None, "seeds")

        def say(text: str) -> None:
            bar.say(f"scrapy feed: {text}")

        def has_room() -> bool:
            held = int(client.get(keys.outstanding) or 0)
            return held < config.high_water and client.llen(keys.seeds) <= _ENOUGH_WAITING

        topic = SeedTopic(
            Kafka(config, say),
            opts.topic or f"inbound_{opts.spider}",
            opts.group or f"{config.namespace}-{opts.spider}",
            lambda seeds: client.lpush(keys.seeds, *seeds),
            has_room,
        )
        trouble = ""
        try:
            with bar, stoppable() as stop, topic.opened():
                while not stop.is_set():
                    try:
                        count = topic.feed()
                    except _PASSING as error:
                        if str(error) != trouble:
                            say(f"{error}; trying again")
                        trouble = str(error)
                        stop.wait(1)
                        continue
                    trouble = ""
                    fed += count
                    bar.update(count)
                    if bar.shown:
                        bar.note("no room" if topic.full else f"{topic.lag()} waiting")
        finally:
            print(json.dumps({"fed": fed}) if opts.json else f"{fed} seeds fed")


def _push(client: Redis, seeds: str, batch: list[str]) -> int:
    """Put a batch into the list, when there is room; return its size."""
    while client.llen(seeds) > _ENOUGH_WAITING:
        time.sleep(0.2)
    count = len(batch)
    if batch:
        client.lpush(seeds, *batch)
        batch.clear()
    return count
