"""Content codings, undone within bounds."""

from __future__ import annotations

import gzip
import random
import time
import zlib
from collections.abc import Callable

import brotli
import pytest

from crawlproject.imaging.codings import decoded
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
    began = time.process_time()
    with pytest.raises(TooLargeImage):
        decoded(bomb, [coding], LIMIT)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_junk_is_unreadable_and_of_half_a_body_the_beginning_is_decoded(name: str) -> None:
    with pytest.raises(UnreadableImage, match=f"content coding {name}: "):
        decoded(b"\xff\xd8\xff\xe0 no such coding" * 9, [name], LIMIT)
    body = ENCODERS[name](DATA)
    assert DATA.startswith(decoded(body[: len(body) // 2], [name], LIMIT))


@pytest.mark.parametrize("name", ENCODERS)
def test_incompressible_data_takes_no_longer(name: str) -> None:
    body = ENCODERS[name](random.Random(0).randbytes(10_000_000))
    began = time.process_time()
    decoded(body, [name.partition(",")[0]], 2**30)
    assert time.process_time() - began < 1.0


def test_nested_codings_are_undone_in_reverse_up_to_a_limit() -> None:
    assert decoded(brotli.compress(gzip.compress(DATA)), ["gzip", "br"], LIMIT) == DATA
    with pytest.raises(UnreadableImage, match="3 nested content codings"):
        decoded(b"", ["gzip"] * 3, LIMIT)


def test_an_unknown_coding_is_ignored() -> None:
    assert decoded(DATA, ["binary"], LIMIT) == DATA
    assert decoded(gzip.compress(DATA), ["utf-8", "gzip"], LIMIT) == DATA
