"""`scrapy feed`: puts files of seeds into the seed list."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from redis import Redis
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from tqdm import tqdm

from crawlproject.commands import QUIET, connected, reports_errors
from crawlproject.frontier import feedfile

_BATCH = 1000
_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there


class Command(ScrapyCommand):
    """Feeds the crawl."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] FILE..."

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Put seeds from files into the crawl"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "Put seeds into the crawl from TSV or CSV files with a header (url; identifier or uuid, source, "
            "priority, again where known), JSON lines or plain lists of URLs, gzipped or not; - is stdin. "
            "Example: scrapy feed museum.tsv flickr.jsonl.gz"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--spider", default="images", help="the spider to feed (default: images)")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Feed one file after the other; a file that cannot be read ends it, with what was fed said."""
        if not args:
            raise UsageError("which FILE? (- for stdin)")
        _, client, keys = connected(self, opts.spider)
        fed = rejected = 0
        batch: list[str] = []
        total = sum(Path(name).stat().st_size for name in args if name != "-")
        bar = tqdm(total=total or None, unit="B", unit_scale=True, desc="feeding", disable=not sys.stderr.isatty())
        try:
            with bar:
                for name in args:
                    for line in feedfile.read(name, bar):
                        if line.seed is None:
                            rejected += 1
                            bar.write(f"{name}:{line.number}: {line.reason}", file=sys.stderr)
                            continue
                        batch.append(line.seed)
                        if len(batch) >= _BATCH:
                            fed += _push(client, keys.seeds, batch)
                fed += _push(client, keys.seeds, batch)
        finally:
            print(f"{fed} seeds fed, {rejected} rejected")
        if rejected and not fed:
            self.exitcode = 1


def _push(client: Redis, seeds: str, batch: list[str]) -> int:
    """Put a batch into the list, when there is room; return its size."""
    while client.llen(seeds) > _ENOUGH_WAITING:
        time.sleep(0.2)
    count = len(batch)
    if batch:
        client.lpush(seeds, *batch)
        batch.clear()
    return count
