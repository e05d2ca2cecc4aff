"""`scrapy events`: writes the events to a file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import redis
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, connected, remark, reports_errors
from crawlproject.sinks.jsonlines import EventFile

_BLOCK = 1.0  # seconds


class Command(ScrapyCommand):
    """Reads the event streams."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] FILE"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Append new events to a file of JSON lines"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Append the events since the last time to FILE, one JSON object a line, each exactly once. "
            "FILE.position, beside it, remembers how far it got. Example: scrapy events results.jsonl --follow"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
        parser.add_argument("--forget", action="store_true", help="give FILE up: keep no events for it any more")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Append what there is; with --follow, what comes."""
        if len(args) != 1:
            raise UsageError("one FILE, please")
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
        if file.skipped:
            remark(f"{file.skipped} entries of the streams are no events of ours, and were left out")
        print(f"{written - file.skipped} events written to {args[0]}")
