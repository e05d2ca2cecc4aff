"""The catalogue: rows of sources with their sizes, hosts and options."""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from crawlproject.config import CircuitRules
from crawlproject.errors import CatalogueError
from crawlproject.models import GONE_STATUSES
from crawlproject.sources.domains import canonical_host, domain_of, domain_of_url
from crawlproject.sources.names import source_name
from crawlproject.sources.rates import rate_for

MOST_BAD = 10  # bad rows that are kept with their reasons
_LONGEST_ROW = 1_000_000  # bytes
_LONGEST_ARRAY = 32 * 2**20  # bytes: an array is held as a whole
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE sources (
    source TEXT PRIMARY KEY, rate REAL, options TEXT, domains TEXT, has_hosts INTEGER
) WITHOUT ROWID;
CREATE TABLE hosts (domain TEXT PRIMARY KEY, rate REAL, source TEXT) WITHOUT ROWID;
CREATE TABLE spoilt (source TEXT PRIMARY KEY) WITHOUT ROWID;
BEGIN;
"""


class BadRow(NamedTuple):
    """A row of the catalogue with a fault: its number from 1, its source if it names one, and what is wrong."""

    number: int
    source: str | None
    reason: str


class Row(NamedTuple):
    """What the catalogue says of a source: its rate by size (rps), and everything else as JSON, "" if nothing.

    The JSON has `circuit` (rules as the functions read them), `gone` (statuses), and `robots` ("ignore") with the
    `hosts` that it is for, and for those below them. `domains` are the registrable domains of its `hosts`, with a
    blank before and after each, or that of its `source_url` where it has no hosts, which `has_hosts` says.
    """

    source: str
    rate: float
    options: str
    domains: str
    has_hosts: bool


class Catalogue:
    """The parsed catalogue, in a temporary database on disk: a million rows do not fit into a worker's memory.

    A domain that several sources claim belongs to the smallest: a seed without a source must not be fetched faster
    than the smallest of them can bear. Of the rows that were left out, `left_out` is the number, and `bad` has the
    first ten.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(_TABLES)
        self.bad: list[BadRow] = []
        self.left_out = 0

    def close(self) -> None:
        """Delete the database."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM sources").fetchone()
        return int(count)

    def add(self, row: Any) -> None:
        """Add a row.

        Raises:
            ValueError: it is invalid, has options without hosts, or its source has a row already.

        """
        source, size, hosts, domains = _row(row)
        options, rate, has_hosts = _options(row), rate_for(size), bool(hosts)
        if options and not has_hosts:
            names = " and ".join(f'"{name}"' for name in options)
            raise ValueError(
                f'{names} of {source} without "hosts": anybody\'s seed could name it. List there the hosts for '
                "which that holds"
            )
        if "robots" in options:
            options["hosts"] = sorted(hosts)
        values = (
            source,
            rate,
            json.dumps(options) if options else "",
            "".join(f" {domain}" for domain in sorted(domains)) + " ",
            has_hosts,
        )
        if not self._db.execute("INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?, ?)", values).rowcount:
            raise ValueError(f"{source} is listed twice")
        self._db.executemany(
            "INSERT INTO hosts VALUES (?1, ?2, ?3) ON CONFLICT (domain) DO UPDATE SET rate = ?2, source = ?3 "
            "WHERE (?2, ?3) < (rate, source)",
            [(domain, rate, source) for domain in domains],
        )

    def leave_out(self, bad: BadRow) -> None:
        """Note a row that is left out."""
        self.left_out += 1
        if len(self.bad) < MOST_BAD:
            self.bad.append(bad)
        if bad.source is not None:
            self._db.execute("INSERT OR IGNORE INTO spoilt VALUES (?)", (bad.source,))

    def rows(self, count: int) -> Iterator[list[Row]]:
        """Yield all rows, `count` at a time."""
        with closing(self._db.execute("SELECT source, rate, options, domains, has_hosts FROM sources")) as found:
            while batch := found.fetchmany(count):
                yield [Row(*row) for row in batch]

    def hosts(self, count: int) -> Iterator[dict[str, str]]:
        """Yield the source of each registrable domain, `count` domains at a time."""
        with closing(self._db.execute("SELECT domain, source FROM hosts")) as found:
            while batch := found.fetchmany(count):
                yield dict(batch)

    def without_sources(self, sources: Iterable[str]) -> list[str]:
        """Return those of `sources` that it has no row for, not even a bad one."""
        there = "SELECT 1 FROM sources WHERE source = ?1 UNION ALL SELECT 1 FROM spoilt WHERE source = ?1"
        return [source for source in sources if not self._has(there, source)]

    def without_hosts(self, hosts: Mapping[str, str]) -> list[str]:
        """Return those of `hosts` (domain to source) that it does not name, unless their source has a bad row."""
        there = "SELECT 1 FROM hosts WHERE domain = ?1"
        spoilt = "SELECT 1 FROM spoilt WHERE source = ?1"
        return [
            domain
            for domain, source in hosts.items()
            if not self._has(there, domain) and not self._has(spoilt, source)
        ]

    def _has(self, query: str, name: str) -> bool:
        if not name.isprintable():  # of others than crawlproject; the database takes valid Unicode only
            return False
        return self._db.execute(query, (name,)).fetchone() is not None


def parse_catalogue(chunks: Iterable[bytes], most: int | None = None) -> Catalogue:
    """Parse a catalogue, at most its first `most` rows: a JSON array or JSON lines, as docs/flow.md describes.

    An invalid row is left out; so is the second of two rows for the same source. Nothing but the database grows
    with the number of rows.

    Raises:
        CatalogueError: it is neither, or none of its rows is valid.

    """
    catalogue = Catalogue()
    try:
        count = 0
        for count, row in enumerate(islice(_rows(chunks), most), 1):
            try:
                if isinstance(row, ValueError):
                    raise row
                catalogue.add(row)
            except ValueError as error:
                catalogue.leave_out(BadRow(count, _source_of(row), str(error)))
        if catalogue.left_out == count > 0:
            first = catalogue.bad[0]
            raise CatalogueError(
                f"none of the {count} rows of the catalogue is valid; row {first.number}: {first.reason}"
            )
    except sqlite3.Error as error:
        catalogue.close()
        raise CatalogueError(f"the temporary folder does not hold the catalogue: {error}") from None
    except BaseException:
        catalogue.close()
        raise
    return catalogue


def _rows(chunks: Iterable[bytes]) -> Iterator[Any]:
    """Yield the rows of a JSON array, or of JSON lines; a line that is not JSON as the ValueError that says so."""
    head, rest = b"", iter(chunks)
    while not (begin := head.lstrip()[:1]) and (chunk := next(rest, b"")):
        head += chunk.removeprefix(codecs.BOM_UTF8)
    if begin == b"[":
        yield from _array(chain([head], rest))
    elif begin == b"{":
        yield from _json_lines(chain([head], rest))
    else:
        raise CatalogueError("the catalogue is not JSON: it must be an array of rows, or JSON lines")


def _array(chunks: Iterable[bytes]) -> Iterator[Any]:
    """Yield the rows one by one: all at once would hold up the threads beside."""
    whole = bytearray()
    for chunk in chunks:
        whole += chunk
        if len(whole) > _LONGEST_ARRAY:
            raise CatalogueError(
                f"the catalogue is an array of more than {_LONGEST_ARRAY} bytes: write it as JSON lines, a row in "
                "each, or as Parquet"
            )
    at = 0
    try:
        text = whole.decode().strip()
        while at == 0 or text[at : at + 1] == ",":
            at = _behind_blanks(text, at + 1)
            if text[at] == "]" and not text[1:at].strip():
                break
            row, at = _DECODER.raw_decode(text, at)
            yield row
            at = _behind_blanks(text, at)
        if text[at:] != "]":
            raise ValueError("expected , or ]")
    except (ValueError, IndexError, RecursionError) as error:
        raise CatalogueError(f"the catalogue is not JSON after character {at}: {error}") from None


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _json_lines(chunks: Iterable[bytes]) -> Iterator[Any]:
    rest = b""
    for chunk in chain(chunks, [b"\n"]):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_ROW:
            raise CatalogueError(f"a row of more than {_LONGEST_ROW} bytes")
        for line in filter(bytes.strip, lines):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                yield ValueError(f"not JSON: {error}")


def _source_of(row: Any) -> str | None:
    """Return the source that a row names, None if it names none."""
    try:
        return source_name(row.get("source_name")) if isinstance(row, dict) else None
    except ValueError:
        return None


def _row(row: Any) -> tuple[str, int, set[str], set[str]]:
    """Return the source of a row, its size, its hosts, and its registrable domains."""
    if not isinstance(row, dict):
        raise ValueError("not an object")  # noqa: TRY004
    source = source_name(row.get("source_name"))
    size = row.get("image_count", row.get("media_count"))
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"image_count of {source} must be a whole number from 0, not {size!r}")
    hosts = row.get("hosts") or []
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ValueError(f"hosts of {source} must be a list of host names")
    url = row.get("source_url") or ""
    if not isinstance(url, str):
        raise ValueError(f"source_url of {source} must be a string")  # noqa: TRY004
    urlsplit(url)  # which says what is wrong with one that is none
    if (wrong := next((host for host in hosts if host.strip() and not _host(host)), None)) is not None:
        raise ValueError(
            f"hosts of {source} has {wrong!r:.80}, which is no host: name one as in www.museum.example"
        )
    own, page = {_host(host) for host in hosts} - {""}, domain_of_url(url)
    # A museum with hosts of its own may have its page on a platform, and has no say there.
    return source, size, own, {domain_of(host) for host in own} or {page} - {""}


def _host(text: str) -> str:
    """Return the host in what a row may name as one: also `host:port`, `*.host`, an IPv6 address, or a URL."""
    text = text.strip()
    if text.count(":") > 1 and not text.startswith("[") and "/" not in text:
        return canonical_host(text)
    host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    return canonical_host(host.removeprefix("*."))


def _options(row: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    circuit = row.get("circuit")
    if circuit is not None:
        if not isinstance(circuit, dict):
            raise ValueError("circuit must be an object of rules")
        options["circuit"] = CircuitRules.pack(CircuitRules.parse(circuit))
    robots = row.get("robots")
    if robots == "ignore":
        options["robots"] = "ignore"
    elif robots is not None:
        raise ValueError(f'robots can be "ignore", where the source has given permission, not {robots!r}')
    gone = row.get("gone")
    if gone is not None:
        if not isinstance(gone, list) or not all(type(one) is int and one in GONE_STATUSES for one in gone):
            raise ValueError(
                f"gone must be a list of statuses, 400 to 499 but 408, 416, 425 and 429, not {gone!r:.80}"
            )
        options["gone"] = sorted(set(gone))
    return options
