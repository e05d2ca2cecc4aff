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

from redis import RedisError
from redis import exceptions as redis_errors
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.kafka import Kafka
from crawlproject.sinks.forwarder import READER, Forwarder
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.state.client import BlockingState
from crawlproject.state.health import fault_of, known_fault
from crawlproject.state.readers import ReaderStatus, forget, readers
from crawlproject.texts import counted, printable

_BLOCK_S = 1.0
_TIMEOUT_S = 5.0  # for an answer of Redis
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


class Command(cli.Command):
    """Append the events since the last time to FILE, one JSON object a line, each exactly once. FILE.position,
    beside it, remembers how far it got. With --kafka, send them to the topics of their names instead, each at
    least once. Either is a reader: what it has not read is kept. --readers lists all readers, --forget gives one
    up.
    """

    arguments = "[options] FILE | --kafka | --readers | --forget NAME"
    summary = "Append new events to a file of JSON lines, or send them to Kafka"
    examples = ("scrapy events results.jsonl --follow", "scrapy events --kafka --follow")
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
        state = cli.connected(self, timeout=_TIMEOUT_S)
        if opts.readers:
            _list(state, opts.json)
        elif opts.forget is not None:
            _forget(state, opts.forget, opts.json)
        elif opts.kafka:
            _send(state, opts)
        else:
            _append(state, args[0], opts)


def _append(state: BlockingState, path: str, opts: argparse.Namespace) -> None:
    with cli.stoppable() as stop:
        file = EventFile(Path(path), state, opts.reader, stop.is_set)
        with file.opened():
            for remark in file.remarks:
                cli.remark(remark)
            _drain(file.drain, stop, opts.follow)
    _report(file.written, file.skipped, opts, f"written to {path}")


def _send(state: BlockingState, opts: argparse.Namespace) -> None:
    with cli.stoppable() as stop:
        forwarder = Forwarder(state, Kafka(state.config, _say), stop.is_set, opts.reader or READER)
        try:
            with forwarder.opened():
                _drain(forwarder.drain, stop, opts.follow)
        finally:
            _report(forwarder.sent, forwarder.skipped, opts, "sent to Kafka")


def _drain(drain: Callable[[float], object], stop: threading.Event, follow: bool) -> None:
    """Drain once, or repeatedly until the stop. It waits out a failing Redis: the reader keeps its position."""
    if not follow:
        drain(0.0)
        return
    down = False
    while not stop.is_set():
        try:
            drain(_BLOCK_S)
        except RedisError as error:
            lasting = not isinstance(error, (redis_errors.ConnectionError, redis_errors.TimeoutError))
            if lasting and known_fault(error) is None:
                raise
            if not down:
                _say(fault_of(error))
            down = True
            stop.wait(_BLOCK_S)
        else:
            if down:
                _say("Redis answers again")
            down = False


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
    found = list(readers(state))
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
