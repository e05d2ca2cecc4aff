"""WARC records of pages: a request and its response in, gzip members out (WARC 1.1, ISO 28500:2017).

warcio makes the records; ISA-L compresses them, in a sixth of the time that warcio's own compression takes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

from isal import isal_zlib
from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

VERSION = "WARC/1.1"
RENAMED = b"X-Crawl-"  # before the names of headers that do not hold for the body as it is kept

_LEVEL = 3  # ISA-L's highest: 22.0 % of the pages' size; zlib's 6 makes 19.6 % in four times the time
_GZIP = 31  # zlib's name for: with gzip's header and trailer

_IDENTICAL = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_NEVER_IN_A_URI = re.compile(r"[^\x21-\x7e]|[<>]")
_LINE_END = re.compile(rb"\r?\n")
_LENGTH = re.compile(rb"(?im)^content-length[ \t]*+:[ \t]*+([^\r\n]*+)\r?$")
_FRAMING = re.compile(rb"(?im)^(?=(?:transfer-encoding|content-length)[ \t]*:)")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding[ \t]*:")
_CODING = re.compile(rb"(?im)^(?=content-encoding[ \t]*:)")


class Place(NamedTuple):
    """Where a record is: the name of its file in the store, and its gzip member there, in bytes."""

    warc: str
    offset: int
    length: int


class Earlier(NamedTuple):
    """A record of the same address in the store: when that was fetched, and the SHA-1 of its body in base 32, ""
    where the body was cut off.
    """

    fetched_at: datetime
    sha1: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its response, to be kept.

    The heads are first line, headers and empty line, as sent and received (`net/connections.py`; `head` makes one
    from parts). `body` is without its transfer and content codings. `fetched_at` has a time zone. `ip` is the
    site's address, "" if unknown. `truncated` says that the body was cut off. Where the
    page was kept `earlier`, an equal body is kept by reference; with `not_modified` the site has said so itself
    (status 304), and sent none. `metadata` is what a body that is kept says: names and values (`warc_fields`).
    """

    url: str
    fetched_at: datetime
    request_head: bytes
    response_head: bytes
    body: bytes
    request_body: bytes = b""
    ip: str = ""
    truncated: bool = False
    earlier: Earlier | None = None
    not_modified: bool = False
    metadata: bytes = b""


def warc_fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return names and values as application/warc-fields."""
    return "".join(f"{name}: {value}\r\n" for name, value in pairs).encode()


def head(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a head made of its parts, where its own bytes are not at hand."""
    return b"\r\n".join((first_line, *(name + b": " + value for name, value in headers), b"", b""))


def compress(data: bytes) -> bytes:
    """Return a gzip member."""
    return isal_zlib.compress(data, _LEVEL, _GZIP)


def payload_digest(body: bytes) -> str:
    """Return the digest of a body as `Earlier` has it."""
    return base64.b32encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode()


def kept_head(received: bytes, size: int) -> bytes:
    """Return the head of a response whose body is kept in `size` bytes, without its codings.

    Headers that no longer hold get another name, by which Common Crawl's readers know them, too:
    `X-Crawl-Transfer-Encoding`, `X-Crawl-Content-Length`, `X-Crawl-Content-Encoding`; and the true length is
    added. All else stays, byte for byte, but for line ends.
    """
    lines = _LINE_END.sub(b"\r\n", received.rstrip(b"\r\n"))
    decoded = _CODING.search(lines) is not None
    lengths = _LENGTH.findall(lines)
    if decoded:
        lines = _CODING.sub(RENAMED, lines)
    if decoded or _CHUNKED.search(lines) or any(length.rstrip(b" \t") != b"%d" % size for length in lengths):
        lines = _FRAMING.sub(RENAMED, lines) + b"\r\nContent-Length: %d" % size
    return lines + b"\r\n\r\n"


def warcinfo(name: str, fields: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the id and the gzip member of the record at the beginning of the file `name`."""
    record = _builder.create_warcinfo_record(name, dict(fields))
    return record.rec_headers.get_header("WARC-Record-ID"), _member(record)


def members(exchange: Exchange, info: str) -> tuple[bytes, ...]:
    """Return the gzip members of response (or `revisit`), request and perhaps metadata.

    `info` is the id of the file's warcinfo.
    """
    url = _NEVER_IN_A_URI.sub(lambda found: quote(found[0]), exchange.url)
    common = {"WARC-Target-URI": url, "WARC-Date": _date(exchange.fetched_at), "WARC-Warcinfo-ID": info}
    if exchange.ip:
        common["WARC-IP-Address"] = exchange.ip
    kind, response_id, digest, earlier = "response", _new_id(), payload_digest(exchange.body), exchange.earlier
    named = {"WARC-Record-ID": response_id, "WARC-Payload-Digest": f"sha1:{digest}"} | common
    received = kept_head(exchange.response_head, len(exchange.body))
    if exchange.truncated:
        named["WARC-Truncated"] = "length"
    if earlier is not None:
        refers_to = {"WARC-Refers-To-Target-URI": url, "WARC-Refers-To-Date": _date(earlier.fetched_at)}
        if exchange.not_modified:
            kind = "revisit"
            named |= {"WARC-Profile": _NOT_MODIFIED, "WARC-Payload-Digest": f"sha1:{earlier.sha1}"} | refers_to
            if not earlier.sha1:
                del named["WARC-Payload-Digest"]
            received = _as_sent(exchange.response_head)
        elif exchange.body and not exchange.truncated and digest == earlier.sha1:
            # Of a body that was cut off it is not known whether the rest was equal, too.
            kind = "revisit"
            named |= {"WARC-Profile": _IDENTICAL, "WARC-Truncated": "length"} | refers_to
    body = exchange.body if kind == "response" else b""
    response = _record(kind, named, received, body)
    common["WARC-Concurrent-To"] = response_id
    headers = {"WARC-Record-ID": _new_id()} | common
    request = _record("request", headers, _as_sent(exchange.request_head), exchange.request_body)
    if kind == "revisit" or not exchange.metadata:
        return _member(response), _member(request)
    metadata = _record("metadata", {"WARC-Record-ID": _new_id()} | common, b"", exchange.metadata)
    return _member(response), _member(request), _member(metadata)


def _as_sent(head: bytes) -> bytes:
    return _LINE_END.sub(b"\r\n", head.rstrip(b"\r\n")) + b"\r\n\r\n"


class _AsItCame(StatusAndHeaders):  # type: ignore[misc]  # warcio has no types
    """A head that warcio writes as it is; its own would lose spelling and bytes beyond ASCII."""

    def __init__(self, head: bytes) -> None:
        super().__init__("", [])
        self.head = head

    def compute_headers_buffer(self, header_filter: object = None) -> None:
        """Set the bytes to be written."""
        self.headers_buff = self.head

    def __bool__(self) -> bool:
        return True


_builder = WARCWriter(None, gzip=False, warc_version=VERSION)


def _record(kind: str, named: Mapping[str, str], head: bytes, body: bytes) -> ArcWarcRecord:
    fields = {"WARC-Type": kind, **named}
    return _builder.create_warc_record(
        "", kind, payload=BytesIO(body), length=len(body), warc_headers_dict=fields, http_headers=_AsItCame(head)
    )


def _member(record: ArcWarcRecord) -> bytes:
    out = BytesIO()
    WARCWriter(out, gzip=False, warc_version=VERSION).write_record(record)
    return compress(out.getvalue())


def _date(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _new_id() -> str:
    return f"<urn:uuid:{uuid4()}>"
