"""`scrapy dead`: looks at the dead letters, gives them another life, or drops them."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from redis import Redis
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject.commands import QUIET, connected, opened_state, remark, reports_errors
from crawlproject.frontier import codec
from crawlproject.state.scripts import DeadRetry
from crawlproject.status.dead_letters import read_dead_letter
from crawlproject.texts import printable

_PAGE = 500


class Command(ScrapyCommand):
    """Lists dead letters, retries or drops them."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "[options] list|retry|drop"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "List dead letters, retry or drop them"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "list shows what could not be fetched or read, and why; retry puts it back into the crawl as if "
            "it were new; drop deletes it for good. "
            "Example: scrapy dead retry --source citymuseum --reason timeout"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add our options."""
        super().add_options(parser)
        parser.add_argument("--source", help="only those of this source")
        parser.add_argument("--reason", help="only those with this text in the reason")
        parser.add_argument("--all", action="store_true", help="drop: all there are, when nothing else is said")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--spider", default="images", help="the spider (default: images)")

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """List, retry or drop."""
        if args not in (["list"], ["retry"], ["drop"]):
            raise UsageError("list, retry or drop?")
        if args == ["drop"] and opts.source is None and opts.reason is None and not opts.all:
            raise UsageError("drop deletes for good: say which by --source or --reason, or --all")
        _, client, keys = connected(self, opts.spider)
        letters = (
            letter
            for letter in _letters(client, keys.dead)
            if (opts.source is None or letter["source"] == opts.source.lower())
            and (opts.reason is None or opts.reason in letter["reason"])
        )
        if args == ["list"]:
            _print(letters, as_json=opts.json)
        elif args == ["retry"]:
            moved = asyncio.run(self._retry(letters, opts.spider))
            print(json.dumps({"retried": moved}) if opts.json else f"{moved} dead letters are back in the crawl")
        else:
            dropped = asyncio.run(self._drop(letters, opts.spider))
            print(json.dumps({"dropped": dropped}) if opts.json else f"{dropped} dead letters are deleted")

    async def _retry(self, letters: Iterator[dict[str, Any]], spider: str) -> int:
        """Return how many were moved."""
        moved = 0
        async with opened_state(self, spider) as state:
            while batch := list(islice(letters, _PAGE)):
                known = [letter for letter in batch if any(letter["raw"])]
                if len(known) < len(batch):
                    remark(f"{len(batch) - len(known)} letters hold neither request nor seed: they stay")
                moved += await state.scripts.retry_dead([_retry_of(letter) for letter in known])
        return moved

    async def _drop(self, letters: Iterator[dict[str, Any]], spider: str) -> int:
        """Return how many were deleted."""
        dropped = 0
        async with opened_state(self, spider) as state:
            while batch := list(islice(letters, _PAGE)):
                dropped += await state.scripts.drop_dead([(one["id"], one["source"] or "") for one in batch])
        return dropped


def _letters(client: Redis, dead: str) -> Iterator[dict[str, Any]]:
    """Yield the dead letters that there are now, the oldest first, as fields decoded for people."""
    newest = cast("list[Any]", client.xrevrange(dead, count=1))
    if not newest:
        return
    last, start = newest[0][0], b"-"
    while True:
        page = cast("list[tuple[bytes, dict[bytes, bytes]]]", client.xrange(dead, start, last, count=_PAGE))
        for at, fields in page:
            yield read_dead_letter(at.decode(), fields)
        if len(page) < _PAGE:
            return
        start = b"(" + page[-1][0]


def _print(letters: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        rows = ({name: value for name, value in letter.items() if name not in {"id", "raw"}} for letter in letters)
        sys.stdout.write("[")
        for number, row in enumerate(rows):
            sys.stdout.write((",\n " if number else "") + json.dumps(row))
        sys.stdout.write("]\n")
        return
    count = 0
    for letter in letters:
        count += 1
        what = letter["url"] or letter["seed"]
        print(f"{letter['time']}  {letter['source'] or '-'}  {printable(letter['reason'], 1000)}  {what!r:.200}")
    print(f"{count} dead letters")


def _retry_of(letter: dict[str, Any]) -> DeadRetry:
    entry, seed = letter["raw"]
    return DeadRetry(letter["id"], letter["source"] or "", codec.renewed(entry) if entry else None, seed)
