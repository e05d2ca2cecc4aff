"""Reads WARC files with three readers that did not write them, and resolves what refers to other records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cdxj_indexer.main import CDXJIndexer
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from crawlproject.contrib.warc.records import Exchange, Place, head

STARTED = datetime(2026, 11, 22, 10, 30, 0, 123456, tzinfo=UTC)


def exchange(number: int, body: bytes | None = None, **changed: Any) -> Exchange:
    """Return the exchange of a page of its own."""
    given: dict[str, Any] = {
        "url": f"http://museum.example/{number}",
        "fetched_at": STARTED,
        "request_head": head(b"GET /%d HTTP/1.1" % number, [(b"Host", b"museum.example"), (b"Accept", b"*/*")]),
        "response_head": head(b"HTTP/1.1 200 OK", [(b"Content-Type", b"text/html; charset=utf-8")]),
        "body": text(number) if body is None else body,
        "ip": "192.0.2.7",
    }
    return Exchange(**given | changed)


def text(number: int) -> bytes:
    """Return the body of a page of its own."""
    return b"<title>Page %d</title>" % number + b"".join(b"<p>%d of %d</p>" % (n, number) for n in range(200))


class Read(NamedTuple):
    """A record, as a reader sees it."""

    kind: str
    named: dict[str, str]
    http: list[tuple[str, str]]
    payload: bytes


def by_warcio(file: Path) -> list[Read]:
    """Return the records of a file; every digest is checked."""
    records = []
    with file.open("rb") as stream:
        for record in ArchiveIterator(stream, check_digests="raise"):
            http = record.http_headers.headers if record.http_headers else []
            payload = record.content_stream().read()
            records.append(Read(record.rec_type, dict(record.rec_headers.headers), http, payload))
    return records


def by_fastwarc(file: Path) -> list[Read]:
    """Return the records of a file; every digest is checked."""
    records = []
    for record in FastIterator(io.BytesIO(file.read_bytes()), parse_http=False):
        assert record.verify_block_digest(), record.record_id
        http: list[tuple[str, str]] = []
        if record.is_http:
            record.parse_http(auto_decode="all")
            http = list(record.http_headers.to_tuples())
        named = dict(record.headers.to_tuples())
        records.append(Read(named["WARC-Type"], named, http, record.reader.read()))
    return records


def by_cdxj(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file's index: one a response or `revisit`."""
    out = io.StringIO()
    CDXJIndexer(output=out, inputs=[str(file)]).process_all()
    return [json.loads(line.split(" ", 2)[2]) for line in out.getvalue().splitlines()]


def at(folder: Path, place: Place) -> Read:
    """Return the record at a place: from these bytes of its file, and no others."""
    with (folder / place.warc).open("rb") as file:
        file.seek(place.offset)
        member = file.read(place.length)
    records = ArchiveIterator(io.BytesIO(member), check_digests="raise")
    record = next(records)
    http = record.http_headers.headers if record.http_headers else []
    read = Read(record.rec_type, dict(record.rec_headers.headers), http, record.content_stream().read())
    assert next(records, None) is None
    return read


def segments(folder: Path) -> list[Path]:
    """Return the closed WARC files of a folder."""
    return sorted(folder.glob("*.warc.gz"))


def all_records(folder: Path) -> Iterator[Read]:
    """Yield the records of all closed WARC files of a folder."""
    for file in segments(folder):
        yield from by_warcio(file)
