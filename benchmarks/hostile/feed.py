"""Files of seeds that `scrapy feed` must refuse line by line, or as a whole, in little memory."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import re
import subprocess
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import redis
from backports import zstd

from benchmarks.hostile.crawling import KEYS
from benchmarks.hostile.room import Room, Tally, environ_of
from benchmarks.ours import MIB, ROOT, SCRAPY, resident

_MOST_MEMORY = 300 * MIB  # a command has some 100 without any seeds
_LOOK_S = 0.02
_GOOD = "http://museum.org/{}.jpg"
_LZ4 = b"\x04\x22\x4d\x18\x64\x40\xa7"  # the header of a frame


class _Fed(NamedTuple):
    seeds: list[str]
    said: str
    status: int
    memory: int  # bytes, at its most


def bad_lines() -> dict[str, str]:
    """Return lines that are no seeds, by what they are."""
    made = {
        "deep list": "[" * 100_000,
        "deep object": '{"url":' * 100_000,
        "deep url": '{"url": ' + "[" * 1_000 + "]" * 1_000 + "}",
        "half JSON": '{"url": "http://a/"',
        "NaN": '{"url": "http://a/", "priority": NaN}',
        "infinite": '{"url": "http://a/", "priority": 1e999}',
        "digits": '{"url": "http://a/", "uuid": ' + "9" * 10_000 + "}",
        "no url": '{"uuid": "a"}',
        "url a number": '{"url": 7}',
        "url an object": '{"url": {"url": "http://a/"}}',
        "list": '["http://a/"]',
        "string": '"http://a/"',
        "null": "null",
        "long uuid": json.dumps({"url": "http://a/", "uuid": "x" * 2_000}),
        "source with escapes": json.dumps({"url": "http://a/", "source": "a\x1b[2Jb"}),
        "source with spaces": json.dumps({"url": "http://a/", "source": "a b\n"}),
        "source a list": json.dumps({"url": "http://a/", "source": ["a"]}),
        "userinfo": "http://me:secret@museum.org/a",
        "userinfo in JSON": json.dumps({"url": "http://me:secret@museum.org/a"}),
        "blank in URL": "http://museum.org/a b",
        "escape in URL": "http://museum.org/a\x1b[2J",
        "NUL in URL": "http://museum.org/\0",
        "scheme": "ftp://museum.org/a",
        "file": "file:///etc/passwd",
        "javascript": "javascript:alert(1)",
        "port": "http://museum.org:99999/",
        "bracket": "http://[museum/",
        "no host": "http:///a",
        "surrogate": json.dumps({"url": "http://museum.org/\ud800"}),
        "URL of 9,000": "http://museum.org/" + "x" * 9_000,
        "1 MiB and more": "http://museum.org/" + "x" * (MIB + 1),
        "5 MB": '{"url": "http://museum.org/' + "x" * 5_000_000 + '"}',
        "option": "-rf",
        "command": "$(touch /tmp/owned)",
    }
    chance = random.Random(14)
    for number in range(500):
        noise = "".join(
            chr(chance.choice((chance.randrange(1, 9), chance.randrange(33, 0xD800)))) for _ in range(60)
        )
        made[f"noise {number}"] = "{" + noise.replace("\x85", "")
    return made


def bad_files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return files, and whether reading ends with an error: damaged ones do; others have bad lines only."""
    text = "".join(f"{_GOOD.format(number)}\n" for number in range(1_000)).encode()
    packed = gzip.compress(text, mtime=0)
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0xFF
    return {
        "a line of gzip without end": (gzip.compress(bytes(300_000_000), 6, mtime=0), False),
        "a cell without end": (
            gzip.compress(b'url,source\n"' + (b"x" * 1_000 + b"\n") * 2_000, 6, mtime=0),
            False,
        ),
        "gzip cut short": (packed[: len(packed) // 2], True),
        "gzip damaged": (bytes(damaged), True),
        "gzip and bytes": (packed[:-8] + bytes(8), True),
        "gzip of nothing but a header": (packed[:10], True),
        "gzip in gzip": (gzip.compress(packed, mtime=0), False),
        "zlib": (zlib.compress(text), False),
        "zstd": (zstd.compress(text), False),
        "xz": (lzma.compress(text), False),
        "lz4": (_LZ4 + os.urandom(10_000), False),
        "noise": (os.urandom(100_000), False),
        "NULs": (bytes(3_000_000), False),
        "UTF-16": (text.decode().encode("utf-16"), False),
    }


def _feed(room: Room, name: str, body: bytes) -> _Fed:
    """Feed a file by the command, into an empty Redis."""
    with room.redis() as url:
        file = room.folder / re.sub(r"\W", "-", name)
        file.write_bytes(body)
        out = room.folder / "said"
        with out.open("wb") as said:
            process = subprocess.Popen(
                [*SCRAPY, "feed", file], cwd=ROOT, env=environ_of(url), stdout=said, stderr=said
            )
            peak = 0
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                time.sleep(_LOOK_S)
        with redis.Redis.from_url(url) as client:
            seeds = [seed.decode() for seed in client.lrange(KEYS.seeds, 0, -1)]
            client.flushall()
        file.unlink()
        return _Fed(seeds, out.read_text(errors="surrogateescape"), process.returncode, peak)


def _faults(fed: _Fed) -> Iterable[str]:
    if "Traceback" in fed.said:
        yield fed.said[-300:]
    if not fed.said.replace("\n", "").replace("\t", "").isprintable():
        yield "it prints what a terminal obeys"
    if fed.memory > _MOST_MEMORY:
        yield f"it took {fed.memory // MIB} MiB"


def feed_lines(room: Room) -> Tally:
    """Feed a file of bad lines among good ones, and bad files."""
    tally, most = Tally("feed lines"), 0
    lines = room.some(list(bad_lines().items()))
    text = "".join(f"{line}\n{_GOOD.format(number)}\n" for number, (_, line) in enumerate(lines))
    fed = _feed(room, "lines", text.encode(errors="surrogateescape"))
    rejected = {int(number) for number in re.findall(r"^\S+/lines:(\d+): ", fed.said, flags=re.MULTILINE)}
    for number, (name, _) in enumerate(lines):
        tally.judge(name, "" if 2 * number + 1 in rejected else "it was not rejected")
        good = _GOOD.format(number) in fed.seeds and 2 * number + 2 not in rejected
        tally.judge(f"the good one after {name}", "" if good else "it was not fed")
    tally.judge("the command", "; ".join(_faults(fed)))
    most = fed.memory
    for name, (body, ends) in room.some(list(bad_files(room.folder).items())):
        fed = _feed(room, name, body)
        faults = list(_faults(fed))
        if strange := [seed for seed in fed.seeds if not re.fullmatch(r"http://museum\.org/\d+\.jpg", seed)]:
            faults.append(f"it fed {strange[0][:80]!r}")
        if ends and "damaged or cut short" not in fed.said:
            faults.append(f"it does not say that the file is damaged: {fed.said[-100:]!r}")
        if fed.status != 1 and not fed.seeds:
            faults.append(f"exit code {fed.status}")
        tally.judge(name, "; ".join(faults))
        most = max(most, fed.memory)
    tally.notes.append(f"`scrapy feed` took at most {most // MIB} MiB")
    return tally
