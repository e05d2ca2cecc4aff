"""HTTP/1.1 as it goes over the wire (RFC 9112): the head of a request, and a response, read within bounds.

`DOWNLOAD_MAXSIZE` bounds the bytes of bodies only: endless headers would fill the memory until `DOWNLOAD_TIMEOUT`,
and a body in chunks, TLS records or packets of one byte would take a thousand times the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from scrapy.exceptions import DownloadFailedError
from scrapy.http import Headers
from twisted.web.http import _ChunkedTransferDecoder

MAX_HEADERS = 262_144  # bytes, as in Chrome; including the status line and all interim responses
_LINE = 128  # bytes that a header line counts for besides its own: some 2,000 lines, as in Node.js
_INTERIM = 1024  # and an interim response: some 200 of them
_LONGEST_NAME = 256  # bytes: names are kept in a cache

MAX_FRAMING = 65_536  # bytes of framing that a body may have besides a quarter of its own
_CHUNK = re.compile(rb"(0{0,7}[1-9a-fA-F][0-9a-fA-F]{0,7})\r\n")  # its size, without extensions, which are rare

_END = re.compile(rb"\n\r?\n")  # of a head; some sites leave out CR
_FOLD = re.compile(rb"\r?\n(?=[ \t])")  # within a field (RFC 9112, section 5.2)
_STATUS = re.compile(rb"(HTTP/\d+\.\d+) +(\d{1,9})(?: .*)?\r?", re.DOTALL | re.IGNORECASE)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")

# Of the connection, not of the response; the length of a body is added when it is known.
_CONTROL = (
    *(b"Connection", b"Content-Length", b"Keep-Alive", b"Proxy-Connection", b"Te", b"Trailers"),
    *(b"Transfer-Encoding", b"Upgrade"),
)
_WITHOUT_BODY = {204, 304}


class BadResponse(DownloadFailedError):
    """An answer that is not HTTP/1, or whose end cannot be found."""


class HeadersTooLarge(BadResponse):
    """Response headers beyond `MAX_HEADERS`."""


class FramingTooLarge(BadResponse):
    """A response of little else than framing: chunk sizes, extensions, trailers, TLS records, packets."""


def request_head(
    method: str, target: bytes, host: bytes, headers: Iterable[tuple[bytes, Sequence[bytes]]], length: int | None
) -> bytes:
    """Return the head of a request, with its empty line; `length` is that of its body, None without one.

    Raises:
        ValueError: it would be no valid head. Line breaks in values become spaces.

    """
    verb = method.encode("ascii", "replace")
    lines = [b"%b %b HTTP/1.1" % (verb, target), b"Host: " + _in_one_line(host)]
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    for name, values in headers:
        if not _named(name):
            raise ValueError(f"a request with a header of an invalid name: {name!r}")
        lines += [b"%b: %b" % (name, _in_one_line(value)) for value in values]
    if not _named(verb) or not _TARGET.fullmatch(target):
        raise ValueError(f"a request that cannot be written: {lines[0]!r}")
    return b"\r\n".join([*lines, b"", b""])


@lru_cache(1024)
def _named(name: bytes) -> bytes:
    """Return the name of a field as Scrapy spells it, b"" if it is none."""
    return name.title() if _TOKEN.fullmatch(name) else b""


def _in_one_line(value: bytes) -> bytes:
    return b" ".join(value.splitlines()) if b"\n" in value or b"\r" in value else value


class Chunks(_ChunkedTransferDecoder):
    """Twisted's decoder, which takes four times as long for chunks of a few bytes, and gets those not whole."""

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Hand over the chunks that are whole, then whatever else there is."""
        if self.state in {"BODY", "CRLF"}:
            left = 2 - len(self._buffer) + (self.length if self.state == "BODY" else 0)
            super().dataReceived(data[:left])
            data = data[left:]
        if self.state == "CHUNK_LENGTH":
            data = bytes(self._buffer) + data
            self._buffer.clear()
            self._start = at = 0
            while size := _CHUNK.match(data, at):
                end = size.end() + int(size[1], 16)
                if data[end : end + 2] != b"\r\n":
                    break
                self.dataCallback(data[size.end() : end])
                at = end + 2
            data = data[at:]
        if data:
            super().dataReceived(data)


class Answer:
    """A response to a request by `method`, as far as it is read; `head_came` and `received` are for its reader.

    `status`, `version`, `headers` and `length`, in bytes, are known when `head`, its bytes, is whole; interim
    responses (1xx) are left out. `length` is None where only the end of the connection ends the body, and where
    it comes in chunks. `is_whole`: all of it was read; `is_cut`: the connection's end was its only end.
    `keeps_open`: the connection may carry another request. `framing` counts bytes of framing, less a quarter of
    the body.
    """

    def __init__(self, method: str) -> None:
        self.head = b""
        self.status = 0
        self.version = ""
        self.headers: Headers
        self.length: int | None = None
        self.is_whole = False
        self.is_cut = False
        self.keeps_open = False
        self.framing = 0
        self.has_bytes = False
        self._method = method
        self._unread = b""  # of a head that is not whole
        self._header_bytes = 0
        self._left: int | None = None  # of the body, if its length is known
        self._chunks: Chunks | None = None
        self._parts: list[bytes] = []

    @property
    def needs_more(self) -> bool:
        """Whether the end of the connection is not the end of the response."""
        return not self.head or self._chunks is not None or self._left is not None

    def head_came(self) -> bool:
        """Take note of the head; tell whether no body is wanted."""
        return False

    def received(self, piece: bytes) -> bool:
        """Take a piece of the body; tell whether it was the last that is wanted."""
        return False

    def read(self, data: bytes) -> bool:
        """Read what has come; tell whether that is enough, as `head_came` or `received` says.

        Raises:
            BadResponse: it cannot be read, or exceeds a bound.
            Exception: as these two do.

        """
        self.has_bytes = True
        if not self.head:
            data = self._read_heads(data)
            if self.framing > MAX_FRAMING and not self.is_whole:
                raise FramingTooLarge(f"framing of more than {MAX_FRAMING} bytes in the headers")
            if self.head and self.head_came():
                return True
            if self.is_whole:
                self.keeps_open &= not data  # unsolicited bytes follow
                return False
        if not data:
            return False
        self.framing += len(data)
        if self._chunks is not None:
            piece = self._read_chunks(data)
        elif self._left is None:
            piece = data
        else:
            piece = data[: self._left]
            self._left -= len(piece)
            self.is_whole = self._left == 0
            self.keeps_open &= len(piece) == len(data)
        self.framing -= len(piece) + len(piece) // 4
        if self.framing > MAX_FRAMING and not self.is_whole:
            raise FramingTooLarge(f"framing of more than a quarter of the body and {MAX_FRAMING} bytes")
        return bool(piece) and self.received(piece)

    def _read_chunks(self, data: bytes) -> bytes:
        assert self._chunks is not None
        try:
            self._chunks.dataReceived(data)
        except Exception as error:  # Twisted has no class for all that may be wrong with chunks
            raise BadResponse(f"chunks that cannot be read: {error}") from error
        piece = b"".join(self._parts)
        self._parts.clear()
        return piece

    def _end_of_chunks(self, rest: bytes) -> None:
        self.is_whole = True
        self.keeps_open &= not rest

    def _read_heads(self, data: bytes) -> bytes:
        """Read on in the head; return what comes behind it."""
        new, begin = len(self._unread), 0
        at = max(new - 2, 0)  # an empty line may have begun
        data = self._unread + data
        while (found := _END.search(data, at)) is not None:
            end = found.end()
            self._count(data, new, end)
            if not self._read_head(data[begin:end]):
                self._unread = b""
                return data[end:]
            self._header_bytes += _INTERIM
            begin = at = new = end
        self._count(data, new, len(data))
        self._unread = data[begin:]
        if not b"HTTP/".startswith(self._unread[:5].upper()):  # else its end would be waited for
            raise BadResponse(f"not an answer in HTTP/1: {self._unread[:80]!r}")
        return b""

    def _count(self, data: bytes, begin: int, end: int) -> None:
        """Count what is new of the heads."""
        self._header_bytes += end - begin + _LINE * data.count(b"\n", begin, end)
        if self._header_bytes > MAX_HEADERS:
            raise HeadersTooLarge(f"response headers of more than {MAX_HEADERS} bytes, or too many lines")

    def _read_head(self, raw: bytes) -> bool:
        """Read a head; tell whether it is that of an interim response."""
        first, *lines = (_FOLD.sub(b"", raw) if b"\n " in raw or b"\n\t" in raw else raw).split(b"\n")
        if (status := _STATUS.fullmatch(first)) is None:
            raise BadResponse(f"not an answer in HTTP/1: {first[:80]!r}")
        self.status = int(status[2])
        if 100 <= self.status < 200:
            return True
        fields: dict[bytes, list[bytes]] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or len(name) > _LONGEST_NAME:  # browsers skip lines of other kinds
                continue
            if spelled := _named(name.strip()):
                fields.setdefault(spelled, []).append(_in_one_line(value.strip()))
        control = {name: fields.pop(name) for name in _CONTROL if name in fields}
        self.head, self.version = raw, status[1].decode().upper()
        wishes = {wish.strip().lower() for value in control.get(b"Connection", ()) for wish in value.split(b",")}
        self.keeps_open = b"close" not in wishes and (self.version != "HTTP/1.0" or b"keep-alive" in wishes)
        self._find_length(control, fields)
        self.headers = Headers(fields)
        return False

    def _find_length(self, control: dict[bytes, list[bytes]], fields: dict[bytes, list[bytes]]) -> None:
        """Find out where the body ends (RFC 9112, section 6.3)."""
        said = control.get(b"Content-Length")
        if self._method == "HEAD" or self.status in _WITHOUT_BODY:
            self.length, self.is_whole = 0, True
            if self._method == "HEAD" and said:
                fields[b"Content-Length"] = said
            return
        if codings := control.get(b"Transfer-Encoding"):
            if {coding.lower() for coding in codings} != {b"chunked"}:  # some say it twice
                raise BadResponse(f"an unknown transfer coding: {codings!r:.80}")
            self._chunks = Chunks(self._parts.append, self._end_of_chunks)
            return
        self.length = self._left = length = _length_of(said)
        if length is None:
            self.keeps_open = False
        else:
            fields[b"Content-Length"] = [b"%d" % length]
            self.is_whole = length == 0


def _length_of(values: Sequence[bytes] | None) -> int | None:
    """Return what Content-Length says; some sites say it twice (RFC 9110, section 8.6).

    Raises:
        BadResponse: it says no number, or several.

    """
    if values is None:
        return None
    said = [value.strip() for each in values for value in each.split(b",")]
    lengths = {int(value) if value.isdigit() and len(value) < 20 else None for value in said}
    if len(lengths) > 1 or None in lengths:
        raise BadResponse(f"an invalid Content-Length: {values!r:.80}")
    return lengths.pop()
