"""`scrapy events`: writes the events to a file, or sends them to Kafka."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import redis
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, connected, remark, reports_errors, stoppable
from crawlproject.kafka import Kafka
from crawlproject.sinks.forwarder import READER, Forwarder
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.sinks.streams import StreamReader

_BLOCK = 1.0  # seconds


class Command(ScrapyCommand):
    """Reads the event streams."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] FILE | --kafka"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Append new events to a file of JSON lines, or send them to Kafka"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Append the events since the last time to FILE, one JSON object a line, each exactly once. "
            "FILE.position, beside it, remembers how far it got. With --kafka, send them to the topics of their "
            "names instead, each at least once. "
            "Examples: scrapy events results.jsonl --follow; scrapy events --kafka --follow"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="say as JSON how many there were")
        parser.add_argument("--kafka", action="store_true", help="send them to Kafka, at CRAWL_KAFKA_BROKERS")
        parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
        parser.add_argument(
            "--forget", action="store_true", help="give FILE, or Kafka, up: keep no events for it any more"
        )

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Append what there is; with --follow, what comes."""
        if opts.kafka:
            if args:
                raise UsageError("a FILE or --kafka, not both")
            self._forward(opts)
            return
        if len(args) != 1:
            raise UsageError("one FILE, please, or --kafka")
        _, client, keys = connected(self)
        file = EventFile(Path(args[0]), client, keys)
        if opts.forget:
            file.forget()
            print(f"no events are kept for {args[0]} any more")
            return
        written = 0
        try:
            with file.opened():
                written = file.drain()
                while opts.follow:
                    try:
                        written += file.drain(_BLOCK)
                    except redis.ConnectionError as error:  # the position is as good as ever: go on from there
                        print(f"scrapy events: {error}; trying again", file=sys.stderr)
                        time.sleep(_BLOCK)
        except KeyboardInterrupt:
            pass
        _report(written - file.skipped, file.skipped, opts, f"written to {args[0]}")

    def _forward(self, opts: argparse.Namespace) -> None:
        config, client, keys = connected(self)
        if opts.forget:
            StreamReader(client, keys, READER).forget()
            print("no events are kept for Kafka any more")
            return
        with stoppable() as stop:
            forwarder = Forwarder(client, keys, Kafka(config, _say), stop.is_set)
            try:
                with forwarder.opened():
                    forwarder.drain()
                    while opts.follow and not stop.is_set():
                        try:
                            forwarder.drain(_BLOCK)
                        except (redis.ConnectionError, redis.TimeoutError) as error:  # where it stands, it knows
                            _say(f"{error}; trying again")
                            stop.wait(_BLOCK)
            finally:
                _report(forwarder.sent, forwarder.skipped, opts, "sent to Kafka")


def _say(text: str) -> None:
    print(f"scrapy events: {text}", file=sys.stderr, flush=True)


def _report(events: int, skipped: int, opts: argparse.Namespace, what: str) -> None:
    if skipped:
        remark(f"{skipped} entries of the streams are no events of ours, and were left out")
    print(json.dumps({"events": events, "skipped": skipped}) if opts.json else f"{events} events {what}")
