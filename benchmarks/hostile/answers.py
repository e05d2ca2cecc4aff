"""Answers to a request for a picture that hurt who reads them: floods of headers and bytes, content codings."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

import brotli
from backports import zstd

from benchmarks.hostile.crawling import IMAGE, crawl
from benchmarks.hostile.room import Room, Tally
from benchmarks.hostile.server import ENDLESS, Answer, Server, coded, drip, good_picture, plain, raw

GOOD = good_picture()
BOMB = 11_000_000  # bytes of zeros, more than are read
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# What is answered, and how the seed must end (`Ran.fault`); None: in any one way.
Answers = dict[str, tuple[Answer, str | None]]
CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9, mtime=0),
    "deflate": lambda data: zlib.compress(data, 9),
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstd.compress,
}


def _floods() -> Answers:
    """Return servers that say too much, or never end, and headers by the thousand, with everything in them."""
    made: Answers = {
        "too-long": (plain(GOOD, length=len(GOOD) + 100), "network"),
        "too-short": (plain(GOOD, length=len(GOOD) - 100), "JPEG: image file is truncated"),
        "none": (plain(GOOD, length=None), IMAGE),
        "two": (plain(GOOD, f"Content-Length: {len(GOOD)}", length=7), "network"),
        "nonsense": (plain(GOOD, "Content-Length: a", length=None), "network"),
        "claims": (plain(GOOD, length=10**15), "DOWNLOAD_MAXSIZE"),
        "drip": (drip, "timeout"),
        "headers": (plain(GOOD, *(f"X-{n}: {n}" for n in range(200))), IMAGE),
        "endless-headers": (ENDLESS["endless-headers"], "response headers of more than 262144 bytes"),
        "endless-line": (ENDLESS["endless-line"], "network"),
        "endless-body": (ENDLESS["endless-body"], "DOWNLOAD_MAXSIZE"),
        "endless-chunks": (ENDLESS["endless-chunks"], "DOWNLOAD_MAXSIZE"),
        "chunks-of-a-byte": (raw(CHUNKED + b"1\r\nx\r\n" * 500_000), "framing of more than a quarter"),
    }
    names = (
        *("Set-Cookie", "Location", "Content-Type", "Content-Encoding", "Content-Length", "Transfer-Encoding"),
        *("X-Robots-Tag", "Content-Usage", "TDM-Reservation", "Retry-After", "Cache-Control"),
        *("Date", "ETag", "Link"),
    )
    values = {
        "empty": "",
        "comma": "," * 20_000,
        "long": "a" * 15_000,
        "digits": "9" * 10_000,
        "escapes": "\x1b[31m\x9b2J\x07",
        "bytes": "\xff\xfe\x80",
        "quotes": '"' + "\\" * 9_000,
        "parts": "a=b;" * 4_000,
    }
    for name in names:
        for what, value in values.items():
            made[f"{name}-{what}"] = plain(GOOD, f"{name}: {value}"), None
        for count in (100, 3_000):
            made[f"{name}-{count}"] = plain(GOOD, *(f"{name}: {number}" for number in range(count))), None
    heads = {
        "no-colon": b"HTTP/1.1 200 OK\r\nX\r\n\r\n",
        "folded": b"HTTP/1.1 200 OK\r\nX: a" + b"\r\n b" * 5_000 + b"\r\n\r\n",
        "nul": b"HTTP/1.1 200 OK\r\nX\0: \0\r\n\r\n",
        "bare-lf": b"HTTP/1.1 200 OK\nX: a\n\n",
        "no-version": b"200 OK\r\n\r\n",
        "version": b"HTTP/9.9 200 OK\r\n\r\n",
        "status": b"HTTP/1.1 99999999999 OK\r\n\r\n",
        "negative": b"HTTP/1.1 -1 OK\r\n\r\n",
        "informational": b"HTTP/1.1 100 Continue\r\n\r\n" * 500 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "reason": b"HTTP/1.1 500 " + b"\x1b[2J" * 3_000 + b"\r\nContent-Length: 0\r\n\r\n",
        "chunk-size": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n",
        "chunk-name": CHUNKED + b"5;" + b"a" * 60_000 + b"\r\n",
        "trailers": CHUNKED + b"0\r\n" + b"X: a\r\n" * 20_000,
        "upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n",
        "nothing": b"",
        "not-http": b"\x16\x03\x01" + bytes(500),
    }
    return made | {name: (raw(head), None) for name, head in heads.items()}


def _codings() -> Answers:
    """Return codings in and around each other, cut short, damaged, misnamed."""
    chance, zeros = random.Random(14), bytes(BOMB)
    made: Answers = {
        "layers": (coded(", ".join(["gzip"] * 500), GOOD), "500 nested content codings"),
        "no-gzip": (coded("gzip", GOOD), "content coding gzip: "),
        "unknown": (coded("utf-8", GOOD), IMAGE),
    }
    for first, code in CODERS.items():
        small = code(GOOD)
        made[f"{first}-good"] = coded(first, small), IMAGE
        made[f"{first}-bomb"] = coded(first, code(zeros)), "larger than DOWNLOAD_MAXSIZE"
        made[f"{first}-cut"] = coded(first, small[: len(small) // 2]), None
        made[f"{first}-empty"] = coded(first, b""), None
        made[f"{first}-twice"] = coded(first, small + small), None
        made[f"{first}-then-bytes"] = coded(first, small + bytes(1_000_000)), None
        for number in range(5):
            damaged = bytearray(small)
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            made[f"{first}-damaged-{number}"] = coded(first, bytes(damaged)), None
        for second, outer in CODERS.items():
            both = f"{first}, {second}"
            made[f"{first}-in-{second}"] = coded(both, outer(small)), IMAGE
            made[f"{first}-bomb-in-{second}"] = coded(both, outer(code(zeros))), None
            made[f"{first}-called-{second}"] = coded(second, small), IMAGE if first == second else None
            layers = ", ".join([both] * 5)
            made[f"ten-of-{first}-{second}"] = coded(layers, outer(small)), "10 nested content codings"
    made["stored"] = coded("deflate", _stored(2_000_000)), None
    made["members"] = coded("gzip", gzip.compress(b"", mtime=0) * 100_000), None
    made["names"] = coded("x" * 10_000, GOOD), None
    made["escapes"] = coded("\x1b[31m\x9b2J, gz\x07ip", GOOD), None
    made["commas"] = coded("," * 10_000, GOOD), None
    made["identity"] = coded(", ".join(["identity"] * 2_000), GOOD), None
    return made


def _stored(size: int) -> bytes:
    """Return deflate in stored blocks of a byte: the careless copy what is left of the input for each."""
    return b"\x78\x01" + b"\0\x01\0\xfe\xff\0" * (size // 6) + b"\x01\0\0\xff\xff" + b"\0\0\0\x01"


def _crawled(room: Room, kind: str, answers: Answers) -> Tally:
    tally = Tally(kind)
    tried = dict(room.some(list(answers.items())))
    with Server({name: answer for name, (answer, _) in tried.items()}) as server:
        seeds = [{"url": f"{server.url}/{name}", "uuid": name} for name in tried]
        ran = crawl(room.folder, seeds, DOWNLOAD_TIMEOUT=4, DOWNLOAD_MAXSIZE=10_000_000)
    for name, (_, wanted) in tried.items():
        tally.judge(name, ran.fault(name, wanted))
    ran.judge(tally)
    return tally


def header_floods(room: Room) -> Tally:
    """Have a worker fetch pictures from servers that say too much, or never end."""
    return _crawled(room, "header floods", _floods())


def content_codings(room: Room) -> Tally:
    """Have a worker fetch pictures in content codings."""
    return _crawled(room, "content codings", _codings())
