"""`scrapy events`: writes the events to a file, or to what plug-ins offer."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from redis import RedisError
from redis import exceptions as redis_errors
from scrapy.exceptions import UsageError

from crawlproject import cli, plugins
from crawlproject.errors import StorageDown
from crawlproject.program import as_called
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.sinks.sink import Sink, Target
from crawlproject.state.client import State
from crawlproject.state.health import fault_of, known_fault, plain
from crawlproject.state.over_shards import ask_shards, not_answering, shown
from crawlproject.streams.readers import EventsLost, ReaderStatus, forget, readers
from crawlproject.texts import counted, printable

_BLOCK_S = 0.2  # that a reader waits for events at a time, and so has a stop wait
_TRY_AGAIN_S = 1.0  # after trouble with Redis or the storage
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@functools.cache
def _targets() -> Mapping[str, type[Target]]:
    return plugins.loaded("readers", cli.remark)


def _flags(targets: Mapping[str, type[Target]]) -> list[str]:
    """Return the names of those that need no place."""
    return [name for name, one in targets.items() if not one.needs_place]


class Command(cli.Command):
    """Append all new events to FILE, one JSON object a line, each exactly once. FILE.position, beside it,
    remembers the last one. With the plug-in datasets, FOLDER:parquet makes a dataset: Parquet files with a row
    for each image, exactly once; FOLDER:pages one with a row for each page; FOLDER:webdataset writes tar files of
    the thumbnails, or the originals, with such a Parquet file beside each. A FOLDER may be s3://BUCKET/PREFIX.
    With the plug-in kafka, --kafka sends each event to the topic of its name, at least once. Each of these is a
    reader: the crawl keeps its unread events. --readers lists all readers, --forget gives one up.
    """

    arguments = "[options] FILE | WHERE:FORM | --readers | --forget NAME"
    examples = ("scrapy events results.jsonl --follow", "scrapy events --readers")
    json_help = "print the result as one JSON document: the counts, the readers, or what was forgotten"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C or SIGTERM")
        parser.add_argument(
            "--reader",
            metavar="NAME",
            help="read under this name, one process at a time; by default each file has its own name, and Kafka's "
            "reader is called kafka",
        )
        parser.add_argument(
            "--skip-lost",
            action="store_true",
            help="where unread events are gone from Redis, say how many, and go on",
        )
        parser.add_argument("--readers", action="store_true", help="list the readers, and how far each is behind")
        parser.add_argument("--forget", metavar="NAME", help="give this reader up: keep no more events for it")
        parser.add_argument("--spider", help=argparse.SUPPRESS)
        targets = _targets()
        cli.add_plugin_options(parser, _flags(targets), targets)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.spider is not None:
            raise UsageError(
                "--spider: a reader gets the events of all spiders. Items of your own spiders go through "
                "ITEM_PIPELINES; scrapy stats counts them"
            )
        targets = _targets()
        flags = _flags(targets)
        chosen = [name for name in flags if getattr(opts, name)]
        modes = [bool(args), *chosen, opts.readers, opts.forget is not None]
        if sum(map(bool, modes)) != 1 or len(args) > 1:
            others = "".join(f"--{name}, or " for name in flags)
            raise UsageError(f"expected exactly one FILE, or {others}--readers, or --forget NAME")
        if opts.reader is not None and not _NAME.fullmatch(opts.reader):
            raise UsageError(
                f"--reader {opts.reader!r}: a name has 1 to 100 letters, digits, dots, hyphens, underscores, and "
                "begins with a letter or digit"
            )
        if opts.reader is not None and not (args or chosen):
            raise UsageError(f"--reader goes with FILE{''.join(f' or --{name}' for name in flags)}")
        placed = [name for name in targets if name not in flags]
        path, form = _form_of(args[0], placed) if args else ("", chosen[0] if chosen else None)
        cli.check_plugin_options(
            [form or ""], opts, targets, lambda name: f"--{name}" if name in flags else f"WHERE:{name}"
        )
        asyncio.run(self._run(path, targets[form] if form else None, opts))

    async def _run(self, path: str, target: type[Target] | None, opts: argparse.Namespace) -> None:
        async with cli.opened_state(self) as state:
            if opts.readers:
                await _list(state, opts.json)
            elif opts.forget is not None:
                await _forget(state, opts.forget, opts.json)
            elif target is None:
                await _read(
                    state,
                    lambda shard, stop: EventFile(_file_of(shard, Path(path)), shard, opts.reader, stop.is_set),
                    opts,
                    f"written to {path}",
                )
            else:
                assert self.settings is not None
                one = target(state, path, opts, self.settings)
                await _read(state, lambda shard, stop: one.sink(shard, stop.is_set), opts, one.what)
                for remark in one.remarks():
                    cli.remark(remark)


def _file_of(shard: State, path: Path) -> Path:
    """Return the file of a shard, as in results.02.jsonl."""
    return path if shard.count == 1 else path.with_name(f"{path.stem}.{shard.number:02d}{path.suffix}")


def _form_of(argument: str, forms: Sequence[str]) -> tuple[str, str | None]:
    """Return where the events go, and which of `forms`; None for a file of JSON lines.

    Raises:
        UsageError: it is neither.

    """
    path, colon, form = argument.rpartition(":")
    if colon and form in forms:
        if not path.rpartition("://")[2]:
            raise UsageError(f"{argument}: expected a place before :{form}, as in out/:{form}")
        return path, form
    if "://" in argument or argument.endswith("/") or path.endswith("/"):
        folder = path if path.endswith("/") else argument
        known = " or ".join(f"{folder}:{form}" for form in forms) or "a file: no plug-in writes to other places"
        raise UsageError(f"{argument}: expected {known}")
    return argument, None


async def _read(
    state: State, sink_of: Callable[[State, threading.Event], Sink], opts: argparse.Namespace, what: str
) -> None:
    """Read the events of all shards, each into a sink of its own.

    Raises:
        RedisError, StorageDown: one cannot be read or written, without --follow; the others are, all the same.
        CrawlprojectError: one cannot go on; then all end.

    """
    with cli.stoppable() as stop:
        sinks = {shard: sink_of(shard, stop) for shard in state.shards}
        faults = await read_shards(sinks, stop, opts)
    written = sum(sink.written for sink in sinks.values())
    if written or not faults:
        _report(written, sum(sink.skipped for sink in sinks.values()), opts, what)
    if faults:
        raise faults[0]


async def read_shards(
    sinks: Mapping[State, Sink], stop: threading.Event, opts: argparse.Namespace
) -> list[BaseException]:
    """Read the events of each shard into its sink; return what went wrong, first what cannot go on.

    `opts` are those of this command, of which `follow` may end meanwhile: then what is there is read to its end.
    """
    reads = (_read_shard(shard, sink, stop, opts) for shard, sink in sinks.items())
    found = await asyncio.gather(*reads, return_exceptions=True)
    faults = [error for error in found if error is not None]
    return sorted(faults, key=lambda error: isinstance(error, (RedisError, StorageDown)))


async def _read_shard(shard: State, sink: Sink, stop: threading.Event, opts: argparse.Namespace) -> None:
    try:
        async with AsyncExitStack() as stack:
            await _drain(shard, sink, stack, stop, opts)
            if sink.is_open:
                await sink.finish()
    except (RedisError, StorageDown) as error:
        if opts.follow:
            stop.set()
        elif shard.count > 1 and isinstance(error, RedisError):
            again = ", and its events are still to be read: run this again when it does"
            raise not_answering(shard, plain(error), again) from None
        raise
    except BaseException:
        stop.set()
        raise


async def _drain(
    shard: State, sink: Sink, stack: AsyncExitStack, stop: threading.Event, opts: argparse.Namespace
) -> None:
    """Drain once, or repeatedly until the stop. Then it waits out a failing Redis or storage: the reader keeps its
    position. Where events are lost it goes on, if it may.
    """
    of = "" if shard.count == 1 else f"{shown(shard)}: "
    down, again = False, ""
    while not stop.is_set():
        follow: bool = opts.follow
        try:
            if not sink.is_open:
                await stack.enter_async_context(sink.opened())
                sink.is_open = True
                for remark in sink.remarks:
                    cli.remark(remark)
            await sink.drain(_BLOCK_S if follow else 0.0)
        except EventsLost as error:
            if not opts.skip_lost:
                raise
            _say(f"{of}lost, going on without them: {error.lost}")
        except (RedisError, StorageDown) as error:
            passing = (redis_errors.ConnectionError, redis_errors.TimeoutError, StorageDown)
            if not follow or not (isinstance(error, passing) or known_fault(error)):
                raise
            if not down:
                _say(of + (str(error) if isinstance(error, StorageDown) else fault_of(error)))
            down, again = True, "goes on" if isinstance(error, StorageDown) else "Redis answers again"
            await asyncio.sleep(_TRY_AGAIN_S)
        else:
            if down:
                _say(of + again)
            down = False
            if not follow:
                break


def _say(text: str) -> None:
    cli.show(as_called(f"scrapy events: {text}"), sys.stderr)


def _report(events: int, skipped: int, opts: argparse.Namespace, what: str) -> None:
    if skipped:
        cli.remark(f"{skipped} entries of the streams were not written by crawlproject, and were left out")
    cli.show(
        json.dumps({"events": events, "skipped": skipped}) if opts.json else f"{counted(events, 'event')} {what}"
    )


async def _forget(state: State, name: str, as_json: bool) -> None:
    positions, unread = await forget(state, name)
    if as_json:
        print(json.dumps({"forgotten": name, "unread": unread, "positions": positions}))
        return
    print(f"reader {printable(name)} forgotten; {unread} events that it had not read are no longer kept for it")
    for stream, at in sorted(positions.items()):
        print(f"  {printable(stream)}: it had read up to {printable(at)}")


# The list


async def _list(state: State, as_json: bool) -> None:
    answers, away = await ask_shards(state.shards, readers)
    for shard, fault in away.items():
        cli.remark(f"{shown(shard)} does not answer, and is not counted here: {fault}")
    found = [(shard, reader) for shard, there in answers.items() for reader in there]
    if as_json:
        print(json.dumps([_as_json(shard, reader) for shard, reader in found], indent=1))
        return
    rows = [["shard", "reader", "behind", "state", "since", "last read", "host, process, output"]]
    for shard, reader in found:
        who = ", ".join(str(part) for part in (reader.host, reader.pid, reader.output) if part is not None)
        is_reading = "reading" if reader.reading else "stopped"
        times = _short(reader.since), _short(reader.last_read)
        cells = (str(shard.number), reader.name, str(reader.behind), is_reading, *times, who or "-")
        rows.append(list(map(printable, cells)))
    for line in cli.in_columns(row if state.count > 1 else row[1:] for row in rows):
        print(line)
    print(counted(len(found), "reader"))


def _as_json(shard: State, reader: ReaderStatus) -> dict[str, object]:
    of = {} if shard.count == 1 else {"shard": shard.number}
    return of | reader._asdict() | {"since": _moment(reader.since), "last_read": _moment(reader.last_read)}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _short(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
