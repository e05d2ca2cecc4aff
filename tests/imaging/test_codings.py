"""Content codings, undone within bounds."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import brotli
import pytest

from crawlproject.imaging.codings import decoded, decoded_beginning
from crawlproject.imaging.failures import TooLargeImage, UnreadableImage

try:
    from compression import zstd  # type: ignore[import-not-found]
except ImportError:
    from backports import zstd


def bare_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]) + bytes(5),
    "deflate": zlib.compress,
    "deflate, bare": bare_deflate,
    "br": lambda data: brotli.compress(data, quality=2),
    "zstd": lambda data: zstd.compress(data[:99]) + zstd.compress(data[99:]),
}
DATA = random.Random(0).randbytes(100_000) + b"abc" * 100_000 + random.Random(1).randbytes(100_000)
LIMIT = 1_000_000


@contextmanager
def little_memory() -> Iterator[None]:
    """Check that not all of a body is decoded meanwhile."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=len)
def test_gives_what_was_encoded(name: str, data: bytes) -> None:
    assert decoded(ENCODERS[name](data), [name.partition(",")[0]], LIMIT) == data


@pytest.mark.parametrize("name", ENCODERS)
def test_output_never_exceeds_the_limit(name: str) -> None:
    coding = name.partition(",")[0]
    body = ENCODERS[name](DATA)
    assert decoded(body, [coding], len(DATA)) == DATA
    with pytest.raises(TooLargeImage, match=rf"larger than DOWNLOAD_MAXSIZE \({len(DATA) - 1} bytes\)"):
        decoded(body, [coding], len(DATA) - 1)
    bomb = ENCODERS[name](bytes(100_000_000))
    with little_memory(), pytest.raises(TooLargeImage):
        decoded(bomb, [coding], LIMIT)


@pytest.mark.parametrize("garbage", [b"\r\n", b"x", bytes(3) + b"\n", b"\x1e\x8b"])
def test_what_follows_a_gzip_file_is_ignored(garbage: bytes) -> None:
    body = gzip.compress(DATA) + garbage
    assert decoded(body, ["gzip"], LIMIT) == DATA
    assert decoded_beginning(body, ["gzip"], LIMIT) == DATA[:LIMIT]


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_junk_is_unreadable_and_of_half_a_body_the_beginning_is_decoded(name: str) -> None:
    with pytest.raises(UnreadableImage, match=f"content coding {name}: "):
        decoded(b"\xff\xd8\xff\xe0 no such coding" * 9, [name], LIMIT)
    body = ENCODERS[name](DATA)
    assert DATA.startswith(decoded(body[: len(body) // 2], [name], LIMIT))


def test_nested_codings_are_undone_in_reverse_up_to_a_limit() -> None:
    assert decoded(brotli.compress(gzip.compress(DATA)), ["gzip", "br"], LIMIT) == DATA
    with pytest.raises(UnreadableImage, match="3 nested content codings"):
        decoded(b"", ["gzip"] * 3, LIMIT)


@pytest.mark.parametrize("size", [0, 1, 65_536, 150_000, 10 * LIMIT])
@pytest.mark.parametrize("name", ENCODERS)
def test_of_a_text_only_the_beginning_is_decoded(name: str, size: int) -> None:
    coding = name.partition(",")[0]
    assert decoded_beginning(ENCODERS[name](DATA), [coding], size) == DATA[:size]
    assert decoded_beginning(gzip.compress(ENCODERS[name](DATA)), [coding, "gzip"], size) == DATA[:size]
    assert decoded_beginning(DATA, [], size) == DATA[:size]


def test_of_each_nested_coding_only_the_beginning_is_decoded() -> None:
    bomb = gzip.compress(zlib.compress(bytes(100_000_000), level=0))
    with little_memory():
        assert decoded_beginning(bomb, ["deflate", "gzip"], 100_000).strip(b"\0") == b""
    with pytest.raises(UnreadableImage, match="3 nested content codings"):
        decoded_beginning(b"", ["gzip"] * 3, LIMIT)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_thousands_of_tiny_parts_are_not_decoded(name: str) -> None:
    few, many = ENCODERS[name](b"") * 100, ENCODERS[name](b"") * 20_000
    assert decoded_beginning(few + ENCODERS[name](DATA), [name], LIMIT) == DATA
    with pytest.raises(UnreadableImage, match=f"content coding {name}: more than 1000 parts"):
        decoded_beginning(many, [name], LIMIT)


def test_a_zstd_window_beyond_8_mib_is_refused() -> None:
    for log, is_read in ((23, True), (24, False)):
        options = {zstd.CompressionParameter.window_log: log, zstd.CompressionParameter.content_size_flag: 0}
        stream = zstd.ZstdCompressor(options=options)
        body = stream.compress(DATA) + stream.flush()
        if is_read:
            assert decoded(body, ["zstd"], LIMIT) == DATA
        else:
            with pytest.raises(UnreadableImage, match="content coding zstd"):
                decoded(body, ["zstd"], LIMIT)
