"""CPU a page of writing WARC files: ours, warcio alone, fastwarc; and of the store, with its syncs.

    python -m benchmarks.warc_writing [FOLDER ...] [--pages 300]

The pages are HTML files below the folders (default: /usr/share/doc and Python's packages), cut to 250,000 bytes.
Each writer makes a response and a request record of each, a gzip member a record. The best of three rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import random
import sysconfig
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastwarc import warc as fastwarc
from isal import isal_zlib
from scrapy.settings import Settings
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from crawlproject.storage import warc
from crawlproject.storage.warc import Exchange, Records, head
from crawlproject.storage.warc_store import PageStore

_CUT = 250_000
_ROUNDS = 3
_GZIP = 31
_AT_ONCE = 100
_URL = "https://museum.example/collection/objects/1234"
_REQUEST = [
    (b"Accept", b"text/html"),
    (b"User-Agent", b"crawlproject/0.1 (+https://example.org)"),
    (b"Host", b"m.example"),
]
_RESPONSE = [
    (b"Server", b"nginx"),
    (b"Date", b"Sun, 22 Nov 2026 10:30:00 GMT"),
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Connection", b"keep-alive"),
    (b"Vary", b"Accept-Encoding"),
    (b"ETag", b'"5f3c-61a2b3c4d5e6f"'),
    (b"Content-Encoding", b"gzip"),
]

Compress = Callable[[bytes], bytes]


def pages_in(folders: Sequence[str], count: int) -> list[bytes]:
    """Return that many pages, the same in every run on a machine."""
    files = sorted(file for folder in folders for file in Path(folder).rglob("*.html") if file.is_file())
    random.Random(1).shuffle(files)
    pages: dict[bytes, None] = {}
    for file in files:
        body = file.read_bytes()[:_CUT]
        if len(body) > 1000:
            pages[body] = None  # without copies: those would be `revisit` records
        if len(pages) == count:
            break
    return list(pages)


def exchanges_of(pages: list[bytes]) -> list[Exchange]:
    """Return the pages with heads such as sites send."""
    return [
        Exchange(
            url=_URL,
            fetched_at=datetime.now(UTC),
            request_head=head(b"GET /collection/objects/1234 HTTP/1.1", _REQUEST),
            response_head=head(b"HTTP/1.1 200 OK", _RESPONSE),
            body=page,
            ip="192.0.2.1",
        )
        for page in pages
    ]


def by_ours(exchanges: list[Exchange]) -> int:
    """Return the bytes that our records take."""
    records = Records()
    return sum(len(member) for one in exchanges for member in records.members(one, "<urn:uuid:1>"))


def by_warcio(exchanges: list[Exchange]) -> int:
    """Return the bytes that warcio's writer makes, at its own gzip level."""
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True, warc_version="1.1")
    response = [(name.decode(), value.decode()) for name, value in _RESPONSE]
    request = [(name.decode(), value.decode()) for name, value in _REQUEST]
    for one in exchanges:
        received = StatusAndHeaders("200 OK", response, protocol="HTTP/1.1")
        sent = StatusAndHeaders("GET /collection/objects/1234 HTTP/1.1", request, is_http_request=True)
        writer.write_request_response_pair(
            writer.create_warc_record(_URL, "request", payload=io.BytesIO(), http_headers=sent),
            writer.create_warc_record(_URL, "response", payload=io.BytesIO(one.body), http_headers=received),
        )
    return out.tell()


def by_fastwarc(compress: Compress) -> Callable[[list[Exchange]], int]:
    """Return a writer by fastwarc's records; its own GZip stream would make one member of the whole file."""

    def write(exchanges: list[Exchange]) -> int:
        size = 0
        for one in exchanges:
            blocks = (
                (fastwarc.response, one.response_head + one.body, one.body),
                (fastwarc.request, one.request_head, b""),
            )
            for kind, block, payload in blocks:
                record = fastwarc.WarcRecord()
                record.init_headers(kind, str(uuid.uuid4()).encode())
                record.headers.append("WARC-Target-URI", _URL)
                record.headers.append("WARC-IP-Address", one.ip)
                record.headers.set("Content-Type", f"application/http; msgtype={kind}")
                record.set_bytes_content(block)
                out = io.BytesIO()
                digest = hashlib.sha1(payload, usedforsecurity=False).digest()
                record.write(out, checksum_data=True, payload_digest=digest)
                size += len(compress(out.getvalue()))
        return size

    return write


def by_isal(level: int) -> Compress:
    """Return ISA-L's gzip of a level."""
    return lambda data: isal_zlib.compress(data, level, _GZIP)


def by_zlib(level: int) -> Compress:
    """Return zlib's gzip of a level."""
    return lambda data: zlib.compress(data, level, _GZIP)


def with_compression(compress: Compress) -> Callable[[list[Exchange]], int]:
    """Return our records with another compression."""

    def write(exchanges: list[Exchange]) -> int:
        ours = warc.compress
        warc.compress = compress  # type: ignore[assignment]
        try:
            return by_ours(exchanges)
        finally:
            warc.compress = ours

    return write


def by_store(exchanges: list[Exchange]) -> int:
    """Return the bytes of the store's files; pages come as from a busy worker, a hundred at a time."""

    async def write(folder: str) -> None:
        store = PageStore(Settings({"CRAWL_PAGES_STORE": folder}))
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def one(exchange: Exchange) -> None:
            async with at_once:
                await store.write(exchange)

        await asyncio.gather(*map(one, exchanges))
        await store.close()

    with tempfile.TemporaryDirectory(dir=".") as folder:
        asyncio.run(write(folder))
        return sum(file.stat().st_size for file in Path(folder).glob("*.warc.gz"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", default=["/usr/share/doc", sysconfig.get_path("purelib")])
    parser.add_argument("--pages", type=int, default=300)
    options = parser.parse_args()
    pages = pages_in(options.folders, options.pages)
    if not pages:
        parser.error(f"no HTML files in {' '.join(options.folders)}: name folders that have some")
    exchanges = exchanges_of(pages)
    total = sum(map(len, pages))
    print(f"{len(pages)} pages, {total / len(pages) / 1000:.1f} KB on average")
    print("| writer | CPU ms a page | elapsed ms a page | size |\n|---|---|---|---|")
    writers: list[tuple[str, Callable[[list[Exchange]], int]]] = [
        ("ours: warcio's records, ISA-L 3", by_ours),
        *((f"the same, ISA-L {level}", with_compression(by_isal(level))) for level in (2, 1)),
        ("the same, zlib 6", with_compression(by_zlib(6))),
        ("the same, not compressed", with_compression(bytes)),
        ("warcio alone (zlib 9)", by_warcio),
        ("fastwarc's records, ISA-L 3", by_fastwarc(by_isal(3))),
        ("fastwarc's records, zlib 6", by_fastwarc(by_zlib(6))),
        (f"the store, {_AT_ONCE} pages waiting, with fsync", by_store),
    ]
    for name, write in writers:
        best = min((_timed(write, exchanges) for _ in range(_ROUNDS)), key=lambda timed: timed[0])
        cpu, elapsed, size = best
        print(
            f"| {name} | {1000 * cpu / len(pages):.2f} | {1000 * elapsed / len(pages):.2f} | {size / total:.1%} |"
        )


def _timed(write: Callable[[list[Exchange]], int], exchanges: list[Exchange]) -> tuple[float, float, int]:
    cpu, clock = time.process_time(), time.perf_counter()
    size = write(exchanges)
    return time.process_time() - cpu, time.perf_counter() - clock, size


if __name__ == "__main__":
    main()
