"""Stored pages, as their readers get them: found by an index, read from WARC files, revisits resolved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from isal import isal_zlib
from scrapy.exceptions import UsageError
from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeaders
from warcio.timeutils import iso_date_to_timestamp

from crawlproject import config
from crawlproject.config.parsers import storage
from crawlproject.contrib.warc.index import REVISIT, Index
from crawlproject.contrib.warc.plugin import WarcSettings
from crawlproject.contrib.warc.segments import GZIP, index_of
from crawlproject.errors import ConfigError, CrawlprojectError
from crawlproject.storage.blobs import Folder, Store, described, folder_of
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable

_loader = ArcWarcRecordLoader()


@contextmanager
def opened_store(given: list[str], settings: Any) -> Iterator[Store]:
    """Open the store that the last arguments of a command name, or else `CRAWL_PAGES_STORE`, for the block.

    Raises:
        CrawlprojectError: there is none, or it fails in the block.
        UsageError: the arguments are wrong.

    """
    if len(given) > 1:
        raise UsageError("expected at most one FOLDER or s3://bucket/prefix/")
    uri = config.read(WarcSettings, settings).store
    if given:
        try:
            uri = storage(given[0])
        except ValueError as error:
            raise UsageError(f"{given[0]!r:.200}: expected {error}", print_help=False) from None
    if uri is None:
        raise ConfigError("no store is named: give a FOLDER or s3://bucket/prefix/, or set CRAWL_PAGES_STORE")
    place = printable(uri, 500)
    try:
        if uri.startswith("s3://"):
            yield S3Storage(uri, settings)
        else:
            yield Folder(Path(uri).absolute() if given else folder_of(uri))
    except CrawlprojectError:
        raise
    except Exception as error:  # whatever boto and the file system find wrong
        remedy = "check that it is there, and the AWS_* settings of a bucket"
        raise CrawlprojectError(f"{place} cannot be used ({described(error)}): {remedy}") from error


def versions(index: Index, url: str) -> list[dict[str, str]]:
    """Return the entries of a URL, oldest first; of other URLs with its key, where there is none of exactly this.

    Raises:
        CrawlprojectError: there is none.

    """
    found = index.entries(url)
    found = [entry for entry in found if entry["url"] == url] or found
    if not found:
        place = index.store.place
        if not index.segments:
            raise CrawlprojectError(f"no closed WARC files of pages are in {place}")
        more = "pages in a file that a worker still writes cannot be found yet"
        if index.unindexed:
            more = f"{len(index.unindexed)} of its files have no index yet: run scrapy index"
        raise CrawlprojectError(f"{printable(url, 500)} is not stored in {place}; {more}")
    return found


class Record(NamedTuple):
    """A response or `revisit`: the headers of the record, the head of the response as it is kept, and the body."""

    named: StatusAndHeaders
    head: bytes
    body: bytes


def read(index: Index, entry: dict[str, str]) -> Record:
    """Return the record of an entry.

    Raises:
        CrawlprojectError: its file is gone or damaged, or another one than was indexed.

    """
    warc, offset, length = entry["filename"], int(entry["offset"]), int(entry["length"])
    if warc not in index.sizes:
        raise CrawlprojectError(
            f"{warc} is in the index, and no longer in {index.store.place}: bring it back, or run scrapy index"
        )
    try:
        data = isal_zlib.decompress(index.store.read(warc, offset, length), GZIP)
        record = _loader.parse_record_stream(BytesIO(data), known_format="warc", no_record_parse=True)
    except (isal_zlib.error, ArchiveLoadFailed, EOFError):  # type: ignore[misc]  # its type is not known
        raise CrawlprojectError(
            f"the record at byte {offset} of {warc} cannot be read: the file is damaged, or its index is that of "
            f"another file; bring the file back, or remove {index_of(warc)} and run scrapy index"
        ) from None
    head, end, body = record.raw_stream.read().partition(b"\r\n\r\n")
    return Record(record.rec_headers, head + end, body)


def original(index: Index, revisit: Record) -> tuple[dict[str, str], Record]:
    """Return the entry and the record that has the body of a `revisit`.

    Raises:
        CrawlprojectError: it cannot be found or read.

    """
    url = revisit.named.get_header("WARC-Refers-To-Target-URI")
    date = revisit.named.get_header("WARC-Refers-To-Date")
    wanted = url, iso_date_to_timestamp(date)
    for entry in index.entries(url):
        if (entry["url"], entry["time"]) == wanted and entry["mime"] != REVISIT:
            record = read(index, entry)
            if record.named.get_header("WARC-Date") == date:
                return entry, record
    raise CrawlprojectError(
        f"the site has sent {printable(url, 500)} unchanged, and the record of {date}, which has its body, is not "
        f"in {index.store.place}: bring its file back, then run scrapy index"
    )
