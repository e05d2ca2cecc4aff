"""`scrapy events`: writes the events to a file, or sends them to Kafka."""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from redis import RedisError
from redis import exceptions as redis_errors
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawlproject import cli
from crawlproject.errors import CrawlprojectError, StorageDown
from crawlproject.kafka import Kafka
from crawlproject.sinks.forwarder import READER, Forwarder
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.sinks.sharded_lines import ShardedEventFile
from crawlproject.state.client import BlockingState
from crawlproject.state.health import fault_of, known_fault
from crawlproject.state.over_shards import shown
from crawlproject.state.readers import EventsLost, ReaderStatus, forget, readers_of_all
from crawlproject.storage.blobs import lookup_of
from crawlproject.storage.parts import parts_of
from crawlproject.texts import counted, printable, without_pyarrow

_BLOCK_S = 1.0
_TIMEOUT_S = 5.0  # for an answer of Redis
ROWS, SAMPLES, EVERY_S = 50_000, 10_000, 600.0  # of a part of a dataset
FORMS = ("parquet", "webdataset")
MOST = {"rows": 10_000_000, "samples": 100_000, "every": 86_400}  # a sample's number has five digits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


class Command(cli.Command):
    """Append the events since the last time to FILE, one JSON object a line, each exactly once. FILE.position,
    beside it, remembers how far it got. FOLDER:parquet makes a dataset of them: Parquet files of a row for each
    image, exactly once; FOLDER:webdataset tar files of the thumbnails, or the originals, with such a Parquet file
    beside each. A FOLDER may be s3://BUCKET/PREFIX. With --kafka, send them to the topics of their names instead,
    each at least once. Each of these is a reader: what it has not read is kept. --readers lists all readers,
    --forget gives one up.
    """

    arguments = "[options] FILE | FOLDER:parquet | FOLDER:webdataset | --kafka | --readers | --forget NAME"
    summary = "Append new events to a file of JSON lines or to a dataset, or send them to Kafka"
    examples = (
        "scrapy events results.jsonl --follow",
        "scrapy events out/:parquet --follow",
        "scrapy events shards/:webdataset --caption title --follow",
        "scrapy events --kafka --follow",
    )
    json_help = "print the result as one JSON document: the counts, the readers, or what was forgotten"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--kafka", action="store_true", help="send them to Kafka, at CRAWL_KAFKA_BROKERS")
        parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C or SIGTERM")
        parser.add_argument(
            "--reader",
            metavar="NAME",
            help="read under this name, one process at a time; by default each file has its own name, and Kafka's "
            "reader is called kafka",
        )
        parser.add_argument(
            "--rows", type=int, metavar="N", help=f"of a dataset: rows of a part at most (default: {ROWS:,})"
        )
        parser.add_argument(
            "--every",
            type=float,
            metavar="S",
            help=f"of a dataset: seconds after which a part appears that is not full (default: {EVERY_S:.0f})",
        )
        parser.add_argument(
            "--samples", type=int, metavar="N", help=f"of a WebDataset: samples of a shard (default: {SAMPLES:,})"
        )
        parser.add_argument(
            "--caption",
            metavar="FIELD",
            help="of a WebDataset: the key of the event, or of its extra, that is the caption, as in alt or title",
        )
        parser.add_argument(
            "--originals",
            action="store_true",
            help="of a WebDataset: samples have the images themselves, as CRAWL_KEEP_ORIGINALS kept them",
        )
        parser.add_argument(
            "--skip-lost",
            action="store_true",
            help="go on when unread events are gone from Redis, and say how many",
        )
        parser.add_argument("--readers", action="store_true", help="list the readers, and how far each is behind")
        parser.add_argument("--forget", metavar="NAME", help="give this reader up: keep no more events for it")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        modes = [bool(args), opts.kafka, opts.readers, opts.forget is not None]
        if sum(modes) != 1 or len(args) > 1:
            raise UsageError("expected exactly one FILE, or --kafka, or --readers, or --forget NAME")
        if opts.reader is not None and not _NAME.fullmatch(opts.reader):
            raise UsageError(
                f"--reader {opts.reader!r}: a name has up to 100 letters, digits and ._:- after a letter or digit"
            )
        if opts.reader is not None and not (args or opts.kafka):
            raise UsageError("--reader goes with FILE or --kafka")
        path, form = _dataset_of(args[0]) if args else ("", None)
        _check_options(form, opts)
        state = cli.connected(self, timeout=_TIMEOUT_S)
        if opts.readers:
            _list(state, opts.json)
        elif opts.forget is not None:
            _forget(state, opts.forget, opts.json)
        elif opts.kafka:
            _send(state, opts)
        elif form is not None:
            _write_dataset(state, path, form, opts, self.settings)
        else:
            _append(state, args[0], opts)


def _append(state: BlockingState, path: str, opts: argparse.Namespace) -> None:
    with cli.stoppable() as stop:
        file: EventFile | ShardedEventFile = (
            EventFile(Path(path), state, opts.reader, stop.is_set)
            if state.count == 1
            else ShardedEventFile(Path(path), state, opts.reader, stop.is_set, _say)
        )
        with file.opened():
            for remark in file.remarks:
                cli.remark(remark)
            _drain(file.drain, stop, opts)
    _report(file.written, file.skipped, opts, f"written to {path}")


def _dataset_of(argument: str) -> tuple[str, str | None]:
    """Return where the events go, and the form of a dataset; None for a file of JSON lines.

    Raises:
        UsageError: it is neither.

    """
    path, colon, form = argument.rpartition(":")
    if colon and form in FORMS:
        if not path or path == "s3://":
            raise UsageError(f"{argument}: expected a folder before :{form}, as in out/:{form}")
        return path, form
    if argument.startswith("s3://") or path.endswith("/"):
        folder = path if path.endswith("/") else argument
        raise UsageError(f"{argument}: expected {' or '.join(f'{folder}:{form}' for form in FORMS)}")
    return argument, None


def _check_options(form: str | None, opts: argparse.Namespace) -> None:
    """Check the options of datasets.

    Raises:
        UsageError: one does not go with the rest, or is out of range.

    """
    of_which = {"rows": FORMS, "every": FORMS, **dict.fromkeys(("samples", "caption", "originals"), FORMS[1:])}
    for name, of in of_which.items():
        value = getattr(opts, name)
        if value is None or value is False:
            continue
        if form not in of:
            raise UsageError(f"--{name} goes with {' or '.join(f'FOLDER:{one}' for one in of)}")
        if name in MOST and not 0 < value <= MOST[name]:
            raise UsageError(f"--{name} {value}: expected more than 0, and {MOST[name]:,} at most")


def _write_dataset(
    state: BlockingState, uri: str, form: str, opts: argparse.Namespace, settings: BaseSettings | None
) -> None:
    try:
        from crawlproject.sinks.dataset import Dataset
        from crawlproject.sinks.parquet import ParquetForm
        from crawlproject.sinks.webdataset import WebDatasetForm
    except ImportError as error:
        raise CrawlprojectError(without_pyarrow(f"FOLDER:{form}", error)) from None
    parts = parts_of(uri, settings)
    maxlen = state.config.of_shard.stream_maxlen  # all rows may come of one shard
    rows = opts.rows or (ROWS if state.count == 1 else max(min(ROWS, maxlen // 2), 1))
    if rows > max(maxlen // 2, 1):
        each = "" if state.count == 1 else f" for each of {state.count} shards"
        raise UsageError(
            f"a part of {rows:,} rows is more than half of CRAWL_STREAM_MAXLEN, {maxlen:,}{each}, "
            "at which the crawl would wait for it: lower --rows, or raise that setting"
        )
    about = {}
    store = "IMAGES_STORE"
    column: Literal["thumbnail", "original"] = "thumbnail"
    if form == "webdataset":
        place = state.config.images_store
        if opts.originals:
            store, column = "CRAWL_KEEP_ORIGINALS", "original"
            if state.config.keep_originals is None:
                raise UsageError(f"--originals needs the setting {store}: where the crawl has kept them")
            place = state.config.keep_originals
        look_up = lookup_of(place, settings, store, _say)
        written: Any = WebDatasetForm(parts, look_up, rows, opts.samples or SAMPLES, opts.caption, column)
        about = {"caption": opts.caption, "pictures": f"{column}s"}
    else:
        written = ParquetForm(parts, rows)
    with cli.stoppable() as stop:
        dataset = Dataset(
            state,
            parts,
            written,
            every=opts.every or EVERY_S,
            name=opts.reader,
            about=about,
            stopping=stop.is_set,
            say=_say,
        )
        with dataset.opened():
            _drain(dataset.drain, stop, opts)
            dataset.commit()
    if missing := getattr(written, "missing", 0):
        cli.remark(f"{counted(missing, column)} missing or unreadable in {store}: rows without a sample")
    _report(dataset.written, dataset.skipped, opts, f"written to {uri}")


def _send(state: BlockingState, opts: argparse.Namespace) -> None:
    with cli.stoppable() as stop:
        forwarder = Forwarder(state, Kafka(state.config, _say), stop.is_set, opts.reader or READER, _say)
        try:
            with forwarder.opened():
                _drain(forwarder.drain, stop, opts)
        finally:
            _report(forwarder.sent, forwarder.skipped, opts, "sent to Kafka")


def _drain(drain: Callable[[float], object], stop: threading.Event, opts: argparse.Namespace) -> None:
    """Drain once, or repeatedly until the stop. Then it waits out a failing Redis or storage: the reader keeps its
    position. Where events are lost it goes on, if it may.
    """
    down, again = False, ""
    while not stop.is_set():
        try:
            drain(_BLOCK_S if opts.follow else 0.0)
        except EventsLost as error:
            if not opts.skip_lost:
                raise
            _say(f"lost, going on without them: {error.lost}")
        except (RedisError, StorageDown) as error:
            passing = (redis_errors.ConnectionError, redis_errors.TimeoutError, StorageDown)
            if not opts.follow or (not isinstance(error, passing) and known_fault(error) is None):
                raise
            if not down:
                _say(str(error) if isinstance(error, StorageDown) else fault_of(error))
            down, again = True, "goes on" if isinstance(error, StorageDown) else "Redis answers again"
            stop.wait(_BLOCK_S)
        else:
            if down:
                _say(again)
            down = False
            if not opts.follow:
                return


def _say(text: str) -> None:
    cli.show(f"scrapy events: {text}", sys.stderr)


def _report(events: int, skipped: int, opts: argparse.Namespace, what: str) -> None:
    if skipped:
        cli.remark(f"{skipped} entries of the streams were not written by crawlproject, and were left out")
    cli.show(
        json.dumps({"events": events, "skipped": skipped}) if opts.json else f"{counted(events, 'event')} {what}"
    )


def _forget(state: BlockingState, name: str, as_json: bool) -> None:
    positions, unread = forget(state, name)
    if as_json:
        print(json.dumps({"forgotten": name, "unread": unread, "positions": positions}))
        return
    print(f"reader {printable(name)} forgotten; {unread} events that it had not read are no longer kept for it")
    for stream, at in sorted(positions.items()):
        print(f"  {printable(stream)}: it had read up to {printable(at)}")


# The list


def _list(state: BlockingState, as_json: bool) -> None:
    found, away = readers_of_all(state)
    for shard, fault in away:
        cli.remark(f"{shown(shard)} does not answer, and is not counted here: {fault}")
    if as_json:
        print(json.dumps([_as_json(reader) for reader in found], indent=1))
        return
    width = max((len(printable(reader.name)) for reader in found), default=6)
    print(
        f"{'reader':<{width}} {'behind':>10}  {'state':<8} {'since':<20} {'last read':<20} host, process, output"
    )
    for reader in found:
        state_now = "reading" if reader.reading else "stopped"
        who = ", ".join(
            printable(str(part)) for part in (reader.host, reader.pid, reader.output) if part is not None
        )
        print(
            f"{printable(reader.name):<{width}} {reader.behind:>10}  {state_now:<8} {_short(reader.since):<20} "
            f"{_short(reader.last_read):<20} {who or '-'}"
        )
    print(counted(len(found), "reader"))


def _as_json(reader: ReaderStatus) -> dict[str, object]:
    return reader._asdict() | {"since": _moment(reader.since), "last_read": _moment(reader.last_read)}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _short(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
