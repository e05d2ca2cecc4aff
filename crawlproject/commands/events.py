"""`scrapy events`: writes the events to a file, or sends them to Kafka."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from redis import exceptions as redis_errors
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.kafka import Kafka
from crawlproject.sinks.forwarder import READER, Forwarder
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.state.streams import StreamReader

_BLOCK_S = 1.0


class Command(cli.Command):
    """Append the events since the last time to FILE, one JSON object a line, each exactly once. FILE.position,
    beside it, remembers how far it got. With --kafka, send them to the topics of their names instead, each at
    least once.
    """

    arguments = "[options] FILE | --kafka"
    summary = "Append new events to a file of JSON lines, or send them to Kafka"
    examples = ("scrapy events results.jsonl --follow", "scrapy events --kafka --follow")
    json_help = "say as JSON how many there were"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--kafka", action="store_true", help="send them to Kafka, at CRAWL_KAFKA_BROKERS")
        parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
        parser.add_argument(
            "--forget", action="store_true", help="give FILE, or Kafka, up: keep no events for it any more"
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.kafka:
            if args:
                raise UsageError("expected a FILE or --kafka, not both")
            self._forward(opts)
            return
        if len(args) != 1:
            raise UsageError("expected exactly one FILE, or --kafka")
        file = EventFile(Path(args[0]), cli.connected(self))
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
                        written += file.drain(_BLOCK_S)
                    except (
                        redis_errors.ConnectionError
                    ) as error:  # the position is as good as ever: go on from there
                        print(f"scrapy events: {error}; trying again", file=sys.stderr)
                        time.sleep(_BLOCK_S)
        except KeyboardInterrupt:
            pass
        _report(written - file.skipped, file.skipped, opts, f"written to {args[0]}")

    def _forward(self, opts: argparse.Namespace) -> None:
        state = cli.connected(self)
        if opts.forget:
            StreamReader(state, READER).forget()
            print("no events are kept for Kafka any more")
            return
        with cli.stoppable() as stop:
            forwarder = Forwarder(state, Kafka(state.config, _say), stop.is_set)
            try:
                with forwarder.opened():
                    forwarder.drain()
                    while opts.follow and not stop.is_set():
                        try:
                            forwarder.drain(_BLOCK_S)
                        except (
                            redis_errors.ConnectionError,
                            redis_errors.TimeoutError,
                        ) as error:  # it knows its place
                            _say(f"{error}; trying again")
                            stop.wait(_BLOCK_S)
            finally:
                _report(forwarder.sent, forwarder.skipped, opts, "sent to Kafka")


def _say(text: str) -> None:
    print(f"scrapy events: {text}", file=sys.stderr, flush=True)


def _report(events: int, skipped: int, opts: argparse.Namespace, what: str) -> None:
    if skipped:
        cli.remark(f"{skipped} entries of the streams were not written by crawlproject, and were left out")
    print(json.dumps({"events": events, "skipped": skipped}) if opts.json else f"{events} events {what}")
