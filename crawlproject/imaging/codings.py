"""Undoes a Content-Encoding, within bounds: a kilobyte can expand to gigabytes.

For pictures, in the decoder process, and for robots.txt.

Not Scrapy's HttpCompressionMiddleware, which runs on the reactor and copies the rest of the input for each 64 KiB
of output: 50 MB of incompressible data block it for ten seconds (deflate), or seven (br).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from crawlproject.imaging.failures import TooLargeImage, UnreadableImage

MAX_CODINGS = 2  # nested; misconfigured servers compress twice

_CHUNK = 65536  # bytes, of input and of output
# Of a text of which only the beginning counts; each part has up to _CHUNK bytes. A large one may have twice as
# many as its size needs: what is compressed little gives a part of a few bytes after each whole one.
_MOST_PARTS = 1000
_ZSTD_WINDOW_LOG = 23  # 8 MiB, the largest window that this coding may have (RFC 9659)


def content_codings(header: Iterable[bytes]) -> tuple[str, ...]:
    """Return the codings that Content-Encoding headers name, in lower case, in the order they were applied in."""
    named = b",".join(header).decode("latin-1").lower().split(",")
    return tuple(name for name in map(str.strip, named) if name not in {"", "identity"})


def decoded(body: bytes, codings: Sequence[str], max_size: int) -> bytes:
    """Return `body` without its content codings (RFC 9110, section 8.4), given in the order they were applied.

    Decoding stops at an unknown coding, which is ignored: servers write anything there. Of a truncated body the
    beginning is returned. Raises TooLargeImage beyond `max_size` bytes, and UnreadableImage.
    """
    for coding in _to_undo(codings):
        parts, size = [], 0
        for part in _parts(body, coding):
            parts.append(part)
            size += len(part)
            if size > max_size:
                raise TooLargeImage(f"larger than DOWNLOAD_MAXSIZE ({max_size} bytes) without its {coding} coding")
        body = b"".join(parts)
    return body


def decoded_beginning(body: bytes, codings: Sequence[str], size: int) -> bytes:
    """Return the first `size` bytes of `body` without its content codings, undone as in `decoded`.

    Little more than that is decoded, of the inner codings either, however large the rest would be. Raises
    UnreadableImage, also for a body of thousands of tiny parts, which take long and give nothing.
    """
    undone = list(_to_undo(codings))
    for left, coding in enumerate(undone, 1 - len(undone)):
        enough = 2 * size + _CHUNK if left else size  # what still has a coding may be larger than without
        most = max(_MOST_PARTS, 2 * enough // _CHUNK)
        beginning = bytearray()
        for number, part in enumerate(_parts(body, coding), 1):
            beginning += part
            if len(beginning) >= enough:
                break
            if number > most:
                raise UnreadableImage(f"content coding {coding}: more than {most} parts")
        body = bytes(beginning)
    return body[:size]


def _to_undo(codings: Sequence[str]) -> Iterator[str]:
    """Return the codings to undo, the one applied last first."""
    if len(codings) > MAX_CODINGS:
        raise UnreadableImage(f"{len(codings)} nested content codings; {MAX_CODINGS} are undone")
    return takewhile(_DECODERS.__contains__, reversed(codings))


def _parts(body: bytes, coding: str) -> Iterator[bytes]:
    try:
        yield from _DECODERS[coding](body)
    except MemoryError:
        raise
    except Exception as error:  # each of these libraries has its own errors
        raise UnreadableImage(f"content coding {coding}: {' '.join(str(error).split())[:200]}") from error


def _slices(body: bytes) -> Iterator[bytes]:
    return (body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK))


def _gzip(body: bytes) -> Iterator[bytes]:
    """Yield the contents of all members of a gzip file; like gzip(1), ignore what follows the last one."""
    stream = zlib.decompressobj(wbits=31)
    for piece in _slices(body):
        data = piece
        while data:
            yield stream.decompress(data, _CHUNK)
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0")  # padding
                if not b"\x1f\x8b".startswith(data[:2]):
                    return
                stream = zlib.decompressobj(wbits=31)
            else:
                data = stream.unconsumed_tail
    yield stream.flush()


def _deflate(body: bytes) -> Iterator[bytes]:
    """Yield the contents of a zlib stream, or of a raw deflate stream, which some servers send."""
    zlib_header = len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
    stream = zlib.decompressobj(wbits=15 if zlib_header else -15)
    for piece in _slices(body):
        data = piece
        while data and not stream.eof:
            yield stream.decompress(data, _CHUNK)
            data = stream.unconsumed_tail
    yield stream.flush()


def _brotli(body: bytes) -> Iterator[bytes]:
    import brotli

    stream = brotli.Decompressor()
    for piece in _slices(body):
        part = stream.process(piece, output_buffer_limit=_CHUNK)
        while part or not (stream.can_accept_more_data() or stream.is_finished()):
            yield part
            part = stream.process(b"", output_buffer_limit=_CHUNK)
        if stream.is_finished():
            return


def _zstd(body: bytes) -> Iterator[bytes]:
    """Yield the contents of all frames."""
    try:
        from compression import zstd  # type: ignore[import-not-found]
    except ImportError:  # before Python 3.14
        from backports import zstd

    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    stream = zstd.ZstdDecompressor(options=options)
    for piece in _slices(body):
        data = piece
        while data:
            yield stream.decompress(data, _CHUNK)
            while not stream.eof and not stream.needs_input:
                yield stream.decompress(b"", _CHUNK)
            data = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream = zstd.ZstdDecompressor(options=options)


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def load() -> None:
    """Import now what the codings need, rather than with the first body."""
    for decode in _DECODERS.values():
        list(decode(b""))
