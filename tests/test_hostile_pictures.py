"""Whole crawls of hostile pictures and servers: each ends with its reason, and the worker goes on."""

from __future__ import annotations

import os
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import slow_pictures
from benchmarks.hostile.pictures import bombs
from benchmarks.hostile.server import Server, plain
from crawlproject.models import IMAGE_FORMATS
from tests.imaging.test_decoders import is_decoder, large_webp, picture, trap
from tests.imaging.test_formats import codestream, icon
from tests.imaging.test_formats import png as broken_png
from tests.test_crawl import KEYS, Crawl
from tests.traps.sitecustomize import CRASH, CRASH_LATER, EXPLOIT, HOG, SPIN

MIB = 1 << 20
GOOD = picture(size=(300, 200))
FORMATS = ",".join(name for name, module in IMAGE_FORMATS.items() if module is None)


def seed(crawl: Crawl, server: Server) -> None:
    crawl.source("museum", 100)
    for name in server.answers:
        crawl.redis.lpush(KEYS.seeds, f'{{"url": "{server.url}/{name}", "uuid": "{name}", "source": "museum"}}')


def memory_of(pids: list[int], field: str = "VmHWM") -> int:
    """Return the bytes of memory that processes have had together, each at its worst."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
    return total


def decoders_of(pid: int) -> list[int]:
    """Return the decoder processes of a worker."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in path.read_text().split() if is_decoder(int(child))]
    return found


def watch(crawl: Crawl) -> int:
    """Wait for the worker to close; return the most memory it had, its decoders included."""
    worker = crawl.workers[0]
    peak = 0
    deadline = time.monotonic() + 120
    while worker.poll() is None:
        assert time.monotonic() < deadline
        peak = max(peak, memory_of([worker.pid, *decoders_of(worker.pid)], "VmRSS"))
        time.sleep(0.02)
    assert worker.returncode == 0
    return peak


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" %s>'
LAUGHS = b'<!DOCTYPE svg [<!ENTITY a "' + b"1" * 1000 + b'"><!ENTITY b "' + b"&a;" * 10_000 + b'">]>'


# Tells NaN, in a reply of 40 bytes
LIAR = EXPLOIT + b"""os.write(0, struct.pack("!cII", b"u", 40, 0) + b'["why", {"width": NaN}]'.ljust(40))\0"""


def pictures() -> dict[str, tuple[bytes, str | None]]:
    """Return the pictures, and of those that are refused the reason."""
    return bombs() | {
        "bomb-webp": (large_webp(16_000, 16_000), "too many pixels: 16000 x 16000"),
        "bomb-webp-9000": (large_webp(9_000, 9_000), "more memory than the 640 MiB that a picture may have"),
        "chunks": (slow_pictures.chunks(1_000_000), "PNG: more than 100000 chunks"),
        "blocks": (slow_pictures.extensions(1_000_000), "GIF: more than 100000 blocks"),
        "segments": (slow_pictures.comments(2_000_000), "JPEG: more than 100000 segments"),
        "scans": (slow_pictures.scans(9_000), "JPEG: more than 40 scans of 7000 x 7000 pixels"),
        "scans-progressive": (
            slow_pictures.scans(300, (900, 900), progressive=True),
            "JPEG: more than 200 scans of 900 x 900 pixels",
        ),
        "strips": (slow_pictures.strips(4_000_000), "TIFF: more than 100000 strips"),
        "tiles": (slow_pictures.tiles(1_000_000), "TIFF: more than 100000 tiles"),
        "layers": (slow_pictures.layers(65_535), None),
        "truncated": (GOOD[: len(GOOD) // 2], "JPEG: image file is truncated"),
        "exif": (picture(exif=b"Exif\0\0II*\0\x08\0\0\0" + b"\xff" * 65_000), None),
        "icc": (picture(icc_profile=os.urandom(4_000_000)), None),
        "bomb-ico": (icon(broken_png(30_000, 30_000)), "more memory than the 640 MiB that a picture may have"),
        "bomb-ico-8000": (icon(broken_png(8_000, 8_000)), "ICO: "),
        "bomb-jp2": (codestream(30_000, 30_000, 30_000, 30_000), "too many pixels: 30000 x 30000"),
        "bomb-jp2-9000": (
            codestream(9_000, 9_000, 9_000, 9_000),
            "more memory than the 640 MiB that a picture may",
        ),
        "bomb-jp2-tiles": (codestream(9_000, 9_000, 10, 10), "more memory than the 640 MiB that a picture may"),
        "bomb-qoi": (b"qoif" + struct.pack(">LLBB", 9_000, 9_000, 4, 0) + b"\xfd" * 1_400_000, "more memory than"),
        "svg": (SVG % b'width="210mm" height="297mm"', None),
        "svg-deep": (SVG % b'viewBox="0 0 4 3"' + b"<g>" * 5_000_000, None),
        "svg-in-html": (b"<!DOCTYPE html><html><body>" + SVG % b'width="4" height="3"', "not a picture in a"),
        "laughs": (LAUGHS + SVG % b'width="&b;" height="3"', "SVG: it declares entities"),
        "crash": (trap(CRASH), "crashes the decoder: killed by SIGSEGV"),
        "crash-later": (trap(CRASH_LATER), None),
        "liar": (trap(LIAR), "crashes the decoder: sent an invalid answer ("),
        "spin": (trap(SPIN), "took longer to decode than CRAWL_DECODE_TIMEOUT (7 s)"),
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
            CRAWL_DECODE_TIMEOUT="7",
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
    sizes = {name: (images[name]["width"], images[name]["height"]) for name in ("svg", "svg-deep")}
    assert sizes == {"svg": (794, 1123), "svg-deep": (4, 3)}
    assert {(images[name]["format"], images[name]["thumbnail"]) for name in sizes} == {("SVG", None)}
    assert peak < 1024 * MIB
    assert "Traceback" not in crawl.log()


def test_a_signal_to_the_whole_group_ends_worker_and_decoders_in_order(crawl: Crawl) -> None:
    body = picture("PNG", (1200, 1000))
    answers = {f"{n}": plain(body) for n in range(300)}
    with Server(answers) as server:
        seed(crawl, server)
        crawl.start()
        crawl.until(lambda: crawl.redis.xlen(KEYS.image_events) > 5)
        worker = crawl.workers[0]
        decoders = decoders_of(worker.pid)
        assert decoders
        for pid in (*decoders, worker.pid):
            os.kill(pid, signal.SIGINT)
        assert worker.wait(60) == 0
    assert not any(map(is_decoder, decoders))
    assert crawl.dead() == {}
    done = crawl.redis.xlen(KEYS.image_events)
    assert 5 < done < 300
    assert crawl.redis.hget(KEYS.counters, "outstanding") == str(300 - done).encode()
    assert "Traceback" not in crawl.log()
