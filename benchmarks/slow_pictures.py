"""Pictures that take long to read, and how long other pictures take beside each of them.

    python -m benchmarks.slow_pictures [--rate 10] [--seconds 10]

Most are small, of many parts, each of which costs a step or a pass over the pixels. Each goes through the pipeline
of a worker with two decoders, again and again, while others come from another source at so many a second: JPEGs of
1.6 megapixels, half of them progressive. Prints what became of it, and how long the others took, from body to
stored thumbnail.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import struct
import time
import zlib
from collections.abc import Callable
from itertools import count as counting
from typing import Any

import uvloop
from PIL import Image

from crawlproject import config
from crawlproject.models import Fetch, FetchedImage, utc_now
from crawlproject.pipelines.thumbnail import ThumbnailPipeline
from crawlproject.politeness.outcomes import Failure


def _saved(form: str, size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, form, **options)
    return out.getvalue()


def scans(count: int, size: tuple[int, int] = (7000, 7000), progressive: bool = False) -> bytes:
    """Return a JPEG of so many scans, most of them empty; a baseline one has one component in each."""
    body = _saved("JPEG", size, progressive=progressive, subsampling=0)
    if progressive:
        last = body.rindex(b"\xff\xda")
        return body[:-2] + body[last:-2] * (count - body.count(b"\xff\xda")) + body[-2:]
    head = body[: body.index(b"\xff\xda")]
    parts = [b"\xff\xda\0\x08\1" + bytes((number, 0x11 * (number > 1))) + b"\0\x3f\0\0" for number in (1, 2, 3)]
    return head + b"".join(parts[number % 3] for number in range(count)) + b"\xff\xd9"


def comments(count: int) -> bytes:
    """Return a JPEG of so many empty comments."""
    body = _saved("JPEG")
    return body[:2] + b"\xff\xfe\0\2" * count + body[2:]


def tiff(tags: dict[int, tuple[int, int, bytes]], head: bytes = b"") -> bytes:
    """Return a TIFF of these tags: their type, the count of their values, and these; `head` comes before, at 8."""
    offset = 8 + len(head)
    table, values = b"", b""
    at = offset + 2 + 12 * len(tags) + 4
    for tag, (kind, number, data) in sorted(tags.items()):
        if len(data) > 4:
            place, values = struct.pack("<L", at + len(values)), values + data
        else:
            place = data.ljust(4, b"\0")
        table += struct.pack("<HHL", tag, kind, number) + place
    return b"II*\0" + struct.pack("<L", offset) + head + struct.pack("<H", len(tags)) + table + bytes(4) + values


def _longs(*numbers: int) -> tuple[int, int, bytes]:
    return 4, len(numbers), struct.pack(f"<{len(numbers)}L", *numbers)


def strips(count: int, compression: int = 1) -> bytes:
    """Return a TIFF of so many strips of a row each, of a pixel."""
    basic = {256: 1, 257: count, 258: 8, 259: compression, 262: 1, 277: 1, 278: 1}
    places = {273: _longs(*range(8, 8 + count)), 279: (1, count, b"\1" * count)}
    return tiff({**{tag: _longs(value) for tag, value in basic.items()}, **places}, b"\0")


def tiles(count: int, compression: int = 1) -> bytes:
    """Return a TIFF of so many tiles of 16 x 16 pixels, in a row."""
    basic = {256: 16 * count, 257: 16, 258: 8, 259: compression, 262: 1, 277: 1, 322: 16, 323: 16}
    places = {324: _longs(*[8] * count), 325: _longs(*[256] * count)}
    return tiff({**{tag: _longs(value) for tag, value in basic.items()}, **places}, bytes(256))


def _chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def chunks(count: int, name: bytes = b"prVt", data: bytes = b"") -> bytes:
    """Return a PNG of so many chunks before its pixels."""
    body = _saved("PNG")
    return body[:33] + _chunk(name, data) * count + body[33:]


def extensions(count: int) -> bytes:
    """Return a GIF of so many comments."""
    body = _saved("GIF")
    at = body.index(b",", 13 + 3 * (2 << (body[10] & 7)))
    return body[:at] + b"!\xfe\x01a\0" * count + body[at:]


def layers(count: int, size: tuple[int, int] = (2000, 2000)) -> bytes:
    """Return a JPEG 2000 that claims so many quality layers."""
    body = bytearray(_saved("JPEG2000", size, no_jp2=True))
    struct.pack_into(">H", body, body.index(b"\xff\x52") + 6, count)
    return bytes(body)


def large() -> bytes:
    """Return a PNG of 99 megapixels, as any site may have."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((11_000, 9_000)).convert("RGBA").save(out, "PNG", compress_level=1)
    return out.getvalue()


HOSTILE: dict[str, Callable[[], bytes] | None] = {
    "none": None,
    "TIFF, 4 million strips": lambda: strips(4_000_000),
    "TIFF, 390,000 tiles": lambda: tiles(390_000),
    "JPEG, baseline, 9,000 scans": lambda: scans(9_000, (4000, 4000)),
    "JPEG, progressive, 200 scans": lambda: scans(200, progressive=True),
    "JPEG, 5 million comments": lambda: comments(5_000_000),
    "PNG, 1.6 million chunks": lambda: chunks(1_600_000),
    "GIF, 4 million comments": lambda: extensions(4_000_000),
    "the most: TIFF, 100,000 strips": lambda: strips(100_000),
    "the most: JPEG, progressive, 40 scans": lambda: scans(40, progressive=True),
    "no attack: PNG, 99 megapixels": large,
}


class Nowhere:
    """A storage that keeps nothing."""

    place = "nowhere"
    remedy = "none"

    def write(self, name: str, data: bytes) -> None:
        """Do nothing."""

    def has(self, name: str, size: int) -> bool:
        """Never."""
        return False

    def is_permanent(self, error: Exception) -> bool:
        """Never."""
        return False


def _fetched(body: bytes, source: str) -> FetchedImage:
    fetch = Fetch(final_url="https://museum.org/a", redirects=0, attempts=1, fetch_s=0.1)
    return FetchedImage("a", "https://museum.org/a", source, "image/jpeg", utc_now(), fetch, body)


def _photos() -> list[bytes]:
    noise = Image.effect_noise((390, 260), 60).resize((1560, 1040)).convert("RGB")
    made = []
    for progressive in (False, True):
        out = io.BytesIO()
        noise.save(out, "JPEG", progressive=progressive)
        made.append(out.getvalue())
    return made


async def beside(body: bytes | None, rate: float, seconds: float) -> tuple[str, list[float], list[float]]:
    """Return what became of a picture, how many seconds it took each time, and how many the others took."""
    nowhere: Any = Nowhere()
    pipeline = ThumbnailPipeline(config.load({}), nowhere)
    photos = _photos()
    outcome, slow, took = "", [], []

    async def look(photo: bytes) -> None:
        began = time.monotonic()
        made = await pipeline.process_item(_fetched(photo, "museum"))
        assert not isinstance(made, Failure)
        took.append(time.monotonic() - began)

    async def attack(body: bytes, until: float) -> None:
        nonlocal outcome
        while (began := time.monotonic()) < until:
            made = await pipeline.process_item(_fetched(body, "hostile"))
            slow.append(time.monotonic() - began)
            outcome = made.reason if isinstance(made, Failure) else "decoded"

    await asyncio.gather(*(look(photo) for photo in photos))
    took.clear()
    began = time.monotonic()
    working = [asyncio.create_task(attack(body, began + seconds))] if body is not None else []
    for number in counting():
        await asyncio.sleep(began + number / rate - time.monotonic())
        if number >= rate * seconds and all(task.done() for task in working[:1]):
            break
        working.append(asyncio.create_task(look(photos[number % 2])))
    await asyncio.gather(*working)
    await pipeline.close_spider()
    return outcome, sorted(slow), sorted(took)


def main() -> None:
    """Measure beside each, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_pictures", description=__doc__)
    parser.add_argument("--rate", type=float, default=10, help="other pictures a second (default: 10)")
    parser.add_argument("--seconds", type=float, default=10, help="for each (default: 10)")
    arguments = parser.parse_args()
    print(
        "| picture | MB | times | each, s | others, ms: median, 99 %, worst | outcome |\n|---|---|---|---|---|---|"
    )
    for name, make in HOSTILE.items():
        body = make() if make is not None else None
        outcome, slow, took = uvloop.run(beside(body, arguments.rate, arguments.seconds))
        each = f"{slow[len(slow) // 2]:.2f}" if slow else ""
        others = ", ".join(
            f"{1000 * one:.0f}" for one in (*(took[int(len(took) * part)] for part in (0.5, 0.99)), took[-1])
        )
        print(
            f"| {name} | {len(body or b'') / 1e6:.1f} | {len(slow)} | {each} | {others} | {outcome} |", flush=True
        )


if __name__ == "__main__":
    main()
