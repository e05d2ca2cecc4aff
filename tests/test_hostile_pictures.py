"""A whole crawl of hostile pictures: each ends with its reason, and the worker goes on."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.hostile.pictures import bombs
from benchmarks.hostile.server import Server, plain
from crawlproject.models import IMAGE_FORMATS
from tests.imaging.analysing import picture
from tests.imaging.test_decoders import children, large_webp, trap
from tests.imaging.test_formats import codestream
from tests.test_crawl import KEYS, Crawl
from tests.traps.sitecustomize import CRASH, CRASH_LATER, EXPLOIT, HOG, SPIN

MIB = 1 << 20
GOOD = picture(size=(300, 200))
FORMATS = ",".join(IMAGE_FORMATS)


def seed(crawl: Crawl, server: Server) -> None:
    crawl.source("museum", 100)
    for name in server.answers:
        crawl.redis.lpush(KEYS.seeds, f'{{"url": "{server.url}/{name}", "uuid": "{name}", "source": "museum"}}')


def memory_of(pids: list[int]) -> int:
    """Return the bytes of memory that processes have together."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
    return total


def watch(crawl: Crawl) -> int:
    """Wait for the worker to close; return the most memory it had, its decoders included."""
    worker = crawl.workers[0]
    peak = 0
    deadline = time.monotonic() + 240
    while worker.poll() is None:
        assert time.monotonic() < deadline
        peak = max(peak, memory_of([worker.pid, *children(worker.pid)]))
        time.sleep(0.02)
    assert worker.returncode == 0
    return peak


# Tells NaN, in a reply of 40 bytes
LIAR = EXPLOIT + b"""os.write(0, struct.pack("!cII", b"u", 40, 0) + b'["why", {"width": NaN}]'.ljust(40))\0"""


def pictures() -> dict[str, tuple[bytes, str | None]]:
    """Return the pictures, and of those that are refused the reason."""
    return bombs() | {
        "bomb-webp": (large_webp(16_000, 16_000), "too many pixels: 16000 x 16000"),
        "bomb-webp-9000": (large_webp(9_000, 9_000), "more memory than the 640 MiB that a picture may have"),
        "bomb-jp2-tiles": (codestream(9_000, 9_000, 10, 10), "more memory than the 640 MiB that a picture may"),
        "truncated": (GOOD[: len(GOOD) // 2], "JPEG: image file is truncated"),
        "crash": (trap(CRASH), "crashes the decoder: killed by SIGSEGV"),
        "crash-later": (trap(CRASH_LATER), None),
        "liar": (trap(LIAR), "crashes the decoder: sent "),
        "spin": (trap(SPIN), "took longer to decode than CRAWL_DECODE_TIMEOUT (12 s)"),
        "hog": (trap(HOG), "needs more memory than the 640 MiB that a picture may have"),
    }


@pytest.mark.judges  # what takes too long
def test_hostile_pictures_end_with_their_reason_within_a_gibibyte(crawl: Crawl) -> None:
    hostile = pictures()
    answers = {name: plain(body, "Content-Type: image/jpeg") for name, (body, _) in hostile.items()}
    # The bytes decide, not what they are called.
    answers |= {"html": plain(b"<html>", "Content-Type: image/jpeg")}
    answers |= {f"good-{n}": plain(GOOD, "Content-Type: text/html") for n in range(30)}
    expected = {name: words for name, (_, words) in hostile.items() if words}
    expected["html"] = "not a picture in a supported format"
    traps = str(Path(__file__).parent / "traps")
    with Server(answers) as server:
        seed(crawl, server)
        crawl.start(
            PYTHONPATH=traps,
            CRAWL_DECODE_TIMEOUT="12",
            CRAWL_FORMATS=FORMATS,
        )
        peak = watch(crawl)
    dead = crawl.dead()
    if "took longer" in dead["hog"]:  # on a busy machine its memory does not fill up in time
        expected["hog"] = expected["spin"]
    assert {name: reason for name, reason in dead.items() if expected.get(name, "?") not in reason} == {}
    assert dead.keys() == expected.keys()
    images = {event["identifier"]: event for event in crawl.events(KEYS.image_events)}
    assert images.keys() == answers.keys() - expected.keys()
    assert images["good-1"]["content_type"] == "text/html"
    assert images["good-1"]["format"] == "JPEG"
    assert peak < 1024 * MIB
    assert "Traceback" not in crawl.log()
