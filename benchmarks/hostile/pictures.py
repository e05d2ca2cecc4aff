"""Pictures that hurt who decodes them: bombs and mutations, through the decoder processes of a worker."""

from __future__ import annotations

import asyncio
import os
import struct
import time
import zlib

from PIL import Image

from benchmarks import slow_pictures
from benchmarks.fuzz_pictures import mutations, readable
from benchmarks.hostile.room import Room, Tally
from benchmarks.hostile.server import good_picture
from benchmarks.ours import MIB, resident
from benchmarks.slow_pictures import chunk, longs, saved, tiff
from crawlproject.imaging.decoders import Decoders
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import Job
from demo.pictures import decompression_bomb

_AT_A_TIME = 2
_TIMEOUT_S = 10.0
_MOST_MEMORY = 1024 * MIB
_LOOK_S = 0.05


def png(*chunks: bytes, size: tuple[int, int] = (5, 5), pixels: bytes = zlib.compress(bytes(30))) -> bytes:
    header = chunk(b"IHDR", struct.pack(">2L5B", *size, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def frames(format_: str, count: int) -> bytes:
    """Return an animation of so many frames, made of one, and the number of frames in its header."""
    body = saved(format_, (4, 4), save_all=True, append_images=[Image.new("RGB", (4, 4))], duration=20)
    if format_ == "GIF":
        last = body.rindex(b"!\xf9")
        return body[:last] + body[last:-1] * count + body[-1:]
    if format_ == "WEBP":
        last = body.rindex(b"ANMF")
        made = body[:last] + body[last:] * count
        return made[:4] + struct.pack("<L", len(made) - 8) + made[8:]
    last = body.rindex(b"fcTL") - 4  # an APNG
    made = body[:last] + body[last : body.rindex(b"IEND") - 4] * count + chunk(b"IEND", b"")
    control = body.index(b"acTL") - 4
    return made[:control] + chunk(b"acTL", struct.pack(">2L", count + 1, 0)) + made[control + 20 :]


def tiff_bomb(side: int) -> bytes:
    """Return a TIFF of one deflated strip."""
    pixels = zlib.compress(bytes(side) * side, 9)
    tags = {256: side, 257: side, 258: 8, 259: 8, 262: 1, 273: 8, 277: 1, 278: side, 279: len(pixels)}
    return tiff({tag: longs(value) for tag, value in tags.items()}, pixels)


def gif_bomb(side: int) -> bytes:
    """Return a GIF that claims to be so large, its picture being a few bytes."""
    body = bytearray(saved("GIF", (4, 4)))
    struct.pack_into("<HH", body, 6, side, side)
    return bytes(body)


def bombs() -> dict[str, tuple[bytes, str | None]]:
    """Return pictures, and of those that are refused the reason."""
    zeros = zlib.compress(bytes(100_000_000), 9)
    return {
        "bomb-pixels": (decompression_bomb(), "too many pixels: 20000 x 10000"),
        "bomb-png": (png(pixels=zeros, size=(30_000, 3_000)), None),
        "bomb-png-5x5": (png(pixels=zeros), None),
        "bomb-gif": (gif_bomb(65_535), "too many pixels: 65535 x 65535"),
        "bomb-gif-9000": (gif_bomb(9_000), None),
        "bomb-tiff": (tiff_bomb(9_000), None),
        "bomb-ztxt": (png(chunk(b"zTXt", b"a\0\0" + zeros)), "PNG: Decompressed data too large"),
        "bomb-itxt": (png(chunk(b"iTXt", b"a\0\1\0\0\0" + zeros)), "PNG: Decompressed data too large"),
        "bomb-icc": (png(chunk(b"iCCP", b"a\0\0" + zeros)), "PNG: Decompressed data too large"),
        "many-ztxt": (
            png(*[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**6)))] * 100),
            "PNG: Too much memory",
        ),
        "absurd": (png(size=(2**31 - 1, 2**31 - 1)), "too many pixels: 2147483647 x 2147483647"),
        "frames-gif": (frames("GIF", 100_000), None),
        "frames-webp": (frames("WEBP", 100_000), None),
        "frames-apng": (frames("PNG", 40_000), None),
        "exif-png": (png(chunk(b"eXIf", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 20_000_000)), None),
        "comments": (b"P3 900 900 255\n" + b"#\n" * 5_000_000, "PPM: more than 100 comments"),
        "targa": (bytes(200) + b"TRUEVISION-XFILE.\0", "TGA: "),
    }


async def _try(tally: Tally, bodies: list[tuple[str, bytes]]) -> None:
    """Decode as many at a time as there are processes; a good picture after each hundred."""
    decoders = Decoders(_AT_A_TIME, Job(100_000_000, 50_000_000, 85, _TIMEOUT_S, formats=readable()))
    good = good_picture()
    slowest, peak = 0.0, 0
    before = resident(os.getpid())  # of the tests that this process has run, when it is one of them
    waiting = iter([*bodies[::-1]])

    async def work() -> None:
        nonlocal slowest
        for number, (name, body) in enumerate(waiting):
            began = time.monotonic()
            try:
                await decoders.analyse(body)
                fault = ""
            except UnreadableImage as error:  # a dead letter with its reason
                fault = f"{error}" if str(error).startswith("crashes") else ""
            except Exception as error:
                fault = repr(error)
            took = time.monotonic() - began
            slowest = max(slowest, took)
            tally.judge(name, fault or (f"took {took:.0f} s" if took > 3 * _TIMEOUT_S + 10 else ""))
            if number % 100 == 0:
                await decoders.analyse(good)

    working = [asyncio.create_task(work()) for _ in range(_AT_A_TIME)]
    while not all(one.done() for one in working):
        peak = max(peak, resident(os.getpid()) - before)
        await asyncio.sleep(_LOOK_S)
    await asyncio.gather(*working)
    await decoders.close()
    tally.judge("memory", f"{peak // MIB} MiB" if peak > _MOST_MEMORY else "")
    tally.notes.append(f"slowest {slowest:.1f} s, at most {peak // MIB} MiB with the decoders")


def pictures(room: Room) -> Tally:
    """Have decoder processes read them: none crashes, hangs or takes more than its memory."""
    tally = Tally("pictures")
    slow = {
        "strips": slow_pictures.strips(4_000_000),
        "tiles": slow_pictures.tiles(390_000),
        "scans": slow_pictures.scans(9_000, (4000, 4000)),
        "progressive scans": slow_pictures.scans(40, progressive=True),
        "comments in JPEG": slow_pictures.comments(5_000_000),
        "chunks": slow_pictures.chunks(1_600_000),
        "comments in GIF": slow_pictures.extensions(4_000_000),
    }
    bodies = room.some([(name, body) for name, (body, _) in bombs().items()] + list(slow.items()))
    made = mutations(14)
    bodies = [*bodies, *((f"mutation {number}", next(made)) for number in range(room.count(room.mutations)))]
    asyncio.run(_try(tally, bodies))
    return tally
