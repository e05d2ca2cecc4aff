"""The pixels of PNGs: inflated by ISA-L, and else as Pillow alone decodes them, whatever is wrong with a file."""

from __future__ import annotations

import gc
import io
import random
import struct
import tracemalloc
import weakref
import zlib

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from benchmarks import fuzz_pictures
from benchmarks.slow_pictures import chunk
from crawlproject.imaging import png
from crawlproject.imaging.analyse import opened
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import Analysis
from tests.imaging.analysing import analyse, picture

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")  # pytest forgets the filter that analyse.py sets

RNG = random.Random(5)
WIDTH, HEIGHT = 97, 61
ROWS = b"".join(bytes([y % 5]) + RNG.randbytes(WIDTH) for y in range(HEIGHT))  # grey, of all filters
STREAM = zlib.compress(ROWS)
# Where a pass of Adam7 begins, and its steps (RFC 2083, 2.6).
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def made(
    *streams: bytes, size: tuple[int, int] = (WIDTH, HEIGHT), depth: int = 8, colour: int = 0, interlaced: int = 0
) -> bytes:
    """Return a PNG with an IDAT for each of these parts of its stream."""
    header = struct.pack(">2L5B", *size, depth, colour, 0, 0, interlaced)
    return with_chunks(chunk(b"IHDR", header), *(chunk(b"IDAT", each) for each in streams), chunk(b"IEND"))


def with_chunks(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def cut(data: bytes, length: int) -> list[bytes]:
    return [data[at : at + length] for at in range(0, len(data), length)]


def opened_png(body: bytes) -> PngImageFile:
    image = opened(body, ["PNG"])
    assert isinstance(image, PngImageFile)
    return image


def verdict(body: bytes) -> Analysis | tuple[str, object]:
    try:
        return analyse(body, quality=95)
    except UnreadableImage as error:
        return str(error), error.facts


def verdict_of_pillow(body: bytes) -> Analysis | tuple[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(png, "load", lambda image: False)
        return verdict(body)


def interlaced() -> bytes:
    passes = []
    for left, upper, across, down in ADAM7:
        width, rows = len(range(left, WIDTH, across)), range(upper, HEIGHT, down)
        passes += [b"\1" + RNG.randbytes(3 * width) for _ in rows]
    return made(zlib.compress(b"".join(passes)), colour=2, interlaced=1)


def animated() -> bytes:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("teal", "red", "navy")]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    return out.getvalue()


def depths() -> list[bytes]:
    """Return a PNG of each kind of pixels (RFC 2083, 4.1.1)."""
    kinds = {0: (1, (1, 2, 4, 8, 16)), 2: (3, (8, 16)), 3: (1, (1, 2, 4, 8)), 4: (2, (8, 16)), 6: (4, (8, 16))}
    bodies = []
    for colour, (samples, sizes) in kinds.items():
        for depth in sizes:
            row = (WIDTH * samples * depth + 7) // 8
            data = zlib.compress(b"".join(bytes([y % 5]) + RNG.randbytes(row) for y in range(HEIGHT)))
            header = struct.pack(">2L5B", WIDTH, HEIGHT, depth, colour, 0, 0, 0)
            palette = [chunk(b"PLTE", RNG.randbytes(3 << depth)), chunk(b"tRNS", b"\0\x80")] if colour == 3 else []
            bodies.append(with_chunks(chunk(b"IHDR", header), *palette, chunk(b"IDAT", data), chunk(b"IEND")))
    return bodies


def large(width: int, height: int) -> bytes:
    """Return a grey PNG of some blocks of pixels, which compress well in part."""
    rows = b"".join(b"\2" + RNG.randbytes(9) + bytes(width - 9) for _ in range(height))
    return made(*cut(zlib.compress(rows), 8192), size=(width, height))


ORDINARY = {
    **{f"kind {number}": body for number, body in enumerate(depths())},
    "interlaced": interlaced(),
    "animated": animated(),
    "large": large(3000, 400),
    "stored": made(zlib.compress(ROWS, 0)),
    "small IDATs": made(*cut(STREAM[:-5], 7), STREAM[-5:]),
    "empty IDATs": made(b"", b"", STREAM[:50], b"", STREAM[50:], b""),
    "a long IDAT": made(zlib.compress(b"".join(b"\1" + RNG.randbytes(400) for _ in range(400))), size=(400, 400)),
    "bytes after the stream": made(STREAM + b"more"),
    "IDATs after the stream": made(STREAM, b"more"),
    "wrong CRC": made(STREAM).replace(chunk(b"IDAT", STREAM)[-4:], b"1234"),
    "bytes after the end": made(STREAM) + bytes(99),
    "text after the pixels": made(STREAM)[:-12] + chunk(b"tEXt", b"Title\0x") + chunk(b"IEND"),
}
# Pillow shows some of these, and says what is wrong with the others.
ODD = {
    "wrong Adler-32": made(STREAM[:-1] + bytes([STREAM[-1] ^ 1])),
    "no Adler-32": made(STREAM[:-4]),
    "Adler-32 in another IDAT": made(STREAM[:-4], STREAM[-4:]),
    "an IDAT for each byte": made(*cut(STREAM, 1)),
    "wrong Adler-32 in another IDAT": made(STREAM[:-4], b"1234"),
    "half a stream": made(STREAM[: len(STREAM) // 2]),
    "no stream": made(b""),
    "no IDAT": made(),
    "a row less": made(zlib.compress(ROWS[: -WIDTH - 1])),
    "half a row less": made(zlib.compress(ROWS[: -WIDTH // 2])),
    "a row more": made(zlib.compress(ROWS + bytes(WIDTH + 1))),
    "a byte more": made(zlib.compress(ROWS + b"\0")),
    "a window of 64 KiB": made(b"\x88\x1c" + STREAM[2:]),
    "a dictionary": made(b"\x78\xbb" + STREAM[2:]),
    "gzip": made(zlib.compress(ROWS, wbits=31)),
    "raw deflate": made(zlib.compress(ROWS, wbits=-15)),
    "unknown filter": made(zlib.compress(b"\7" + ROWS[1:])),
    "broken in the middle": made(STREAM[:3000] + bytes(40) + STREAM[3040:]),
    "a chunk between": with_chunks(
        made(STREAM[:3000])[8:-12], chunk(b"tEXt", b"Title\0x"), made(STREAM[3000:])[33:]
    ),
    "cut in the pixels": made(STREAM)[: len(STREAM) // 2],
    "cut in the checksum": made(STREAM)[: -12 - 2],
    "no end": made(STREAM)[:-12],
    "broken after the pixels": made(STREAM)[:-12] + b"\0\0\0\4\1\2\3\4junk",
    "a long chunk after the pixels": made(STREAM)[:-12] + b"\x7f\xff\xff\xfftEXtjunk",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_isal_inflates_ordinary_pictures_to_the_same_pixels(name: str) -> None:
    image, other = opened_png(ORDINARY[name]), opened_png(ORDINARY[name])
    assert png.load(image)
    other.load()
    assert (image.mode, image.tobytes()) == (other.mode, other.tobytes())
    assert verdict(ORDINARY[name]) == verdict_of_pillow(ORDINARY[name])


@pytest.mark.parametrize("name", ODD)
def test_pillow_alone_judges_what_is_odd(name: str) -> None:
    assert verdict(ODD[name]) == verdict_of_pillow(ODD[name])


@pytest.mark.parametrize("size", [(254, 257), (65534, 1), (65534, 2), (13106, 5), (65533, 1), (65535, 1)])
def test_pictures_may_end_where_a_block_ends(size: tuple[int, int]) -> None:
    body = large(*size)
    assert verdict(body) == verdict_of_pillow(body)


@pytest.mark.parametrize("seed", range(20))
def test_mutated_pictures_get_the_same_verdict(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [*ORDINARY.values(), *ODD.values()]
    for _ in range(25):
        body = fuzz_pictures.mutated(rng, bodies)
        if body.startswith(b"\x89PNG\r\n\x1a\n"):
            assert verdict(body) == verdict_of_pillow(body)


def test_no_more_is_inflated_than_the_picture_has() -> None:
    bomb = made(zlib.compress(ROWS + bytes(100_000_000)))
    tracemalloc.start()
    try:
        assert not png.load(opened_png(bomb))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert verdict(bomb) == verdict_of_pillow(bomb)


@pytest.mark.parametrize("body", [picture("PNG"), ODD["half a stream"]], ids=["whole", "broken"])
def test_a_picture_leaves_memory_at_once(body: bytes) -> None:
    image = opened_png(body)
    gc.disable()
    try:
        png.load(image)
        gone = weakref.ref(image)
        del image
        assert gone() is None
    finally:
        gc.enable()
