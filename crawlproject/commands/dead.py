"""`scrapy dead`: lists, retries or drops dead letters."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from redis import RedisError
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.frontier import codec
from crawlproject.frontier.dead_letters import read_dead_letter
from crawlproject.models import SOURCE
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import DeadLetter
from crawlproject.state.client import State
from crawlproject.state.health import plain
from crawlproject.state.over_shards import shown
from crawlproject.streams.streams import dead_letters
from crawlproject.texts import counted, printable

_BATCH = 500  # dead letters a call


class Command(cli.Command):
    """list shows the requests and seeds that failed for good, with their reasons; retry puts them back into the
    crawl as if they were new; drop deletes them permanently.
    """

    arguments = "[options] list|retry|drop"
    examples = ("scrapy dead retry --source citymuseum --reason timeout",)
    spider_help = "the spider"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--source", help="only those of this source")
        parser.add_argument("--reason", help="only those whose reason contains this text")
        parser.add_argument("--all", action="store_true", help="with retry and drop: all of them")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args not in (["list"], ["retry"], ["drop"]):
            raise UsageError("expected list, retry or drop")
        if args != ["list"] and opts.source is None and opts.reason is None and not opts.all:
            how = "deletes permanently" if args == ["drop"] else "puts dead letters back into the crawl"
            raise UsageError(f"{args[0]} {how}: select by --source or --reason, or give --all")
        asyncio.run(self._run(args[0], opts))

    async def _run(self, what: str, opts: argparse.Namespace) -> None:
        async with cli.opened_state(self, opts.spider) as state:
            letters = _selected(state, opts.source, opts.reason)
            if what == "list":
                count = await _print(letters, as_json=opts.json)
            else:
                name, as_taken = ("retried", _retried) if what == "retry" else ("dropped", _dropped)
                count = await _take(state, letters, as_taken)
                back = f"{'is' if count == 1 else 'are'} back in the crawl"
                said = f"{counted(count, 'dead letter')} {back if what == 'retry' else 'deleted'}"
                print(json.dumps({name: count}) if opts.json else said)
            if not count and opts.source is not None:
                await cli.remark_unknown(state, [opts.source.lower()])


async def _take(
    state: State, letters: AsyncIterator[dict[str, Any]], as_taken: Callable[[dict[str, Any]], DeadLetter | None]
) -> int:
    """Take letters out of their streams, a batch of a shard at a time; return how many."""
    taken, batches = 0, defaultdict[int, list[DeadLetter]](list)
    async for letter in letters:
        if (one := as_taken(letter)) is not None:
            batches[letter["shard"]].append(one)
        if len(batches[letter["shard"]]) == _BATCH:
            taken += await state.shards[letter["shard"]].scripts.take_dead(batches.pop(letter["shard"]))
    for number, rest in batches.items():
        taken += await state.shards[number].scripts.take_dead(rest)
    return taken


def _dropped(letter: dict[str, Any]) -> DeadLetter:
    return DeadLetter(letter["id"], letter["source"] or "")


async def _selected(state: State, source: str | None, reason: str | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the dead letters of `source` with `reason` in their reason; None selects all.

    Those of one shard after the other, the oldest first; of one that does not answer, a note says that they are
    missing.
    """
    for shard in state.shards:
        try:
            async for at, fields in dead_letters(shard):
                letter = read_dead_letter(at, fields) | {"shard": shard.number}
                if source is not None and letter["source"] != source.lower():
                    continue
                if reason is None or reason in letter["reason"]:
                    yield letter
        except RedisError as error:
            if state.count == 1:
                raise
            cli.remark(f"{shown(shard)} does not answer, and its dead letters are missing here: {plain(error)}")


async def _print(letters: AsyncIterator[dict[str, Any]], *, as_json: bool) -> int:
    """Print dead letters; return how many."""
    count = 0
    if as_json:
        sys.stdout.write("[")
    async for letter in letters:
        count += 1
        if as_json:
            row = {name: value for name, value in letter.items() if name not in {"id", "raw", "shard"}}
            sys.stdout.write((",\n " if count > 1 else "") + json.dumps(row))
            continue
        what = letter["url"] or letter["seed"]
        reason = printable(letter["reason"], 1000) + _known(letter["image"])
        extra = "" if letter["extra"] is None else f"  {json.dumps(letter['extra'], ensure_ascii=False):.200}"
        cli.show(f"{letter['time']}  {letter['source'] or '-'}  {reason}  {what!r:.200}{extra}")
    print("]" if as_json else counted(count, "dead letter"))
    return count


def _known(image: dict[str, Any] | None) -> str:
    """Return what is known of the image of a dead letter, in a few words."""
    if image is None:
        return ""
    words = f" ({image.get('format')} of {image.get('width')} x {image.get('height')} pixels"
    quality = image.get("compression_quality")
    return printable(words + ("" if quality is None else f", quality {quality}")) + ")"


def _retried(letter: dict[str, Any]) -> DeadLetter | None:
    entry, seed = letter["raw"]
    if not (entry or seed):
        cli.remark(f"the dead letter of {letter['time']} holds neither request nor seed, and was not retried")
        return None
    if entry is None:
        return DeadLetter(letter["id"], letter["source"] or "", seed=seed)
    again = codec.renewed(entry)
    name, domain = codec.peek(again).get("meta", {}).get(SOURCE), None
    with suppress(ValueError):  # others may have written it
        domain = domain_of_url(codec.url_of(again)) or None
    return DeadLetter(
        letter["id"],
        letter["source"] or "",
        again,
        domain=domain,
        name=name if isinstance(name, str) else None,
    )
