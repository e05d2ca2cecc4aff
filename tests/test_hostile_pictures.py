"""Whole crawls of hostile pictures and servers: each ends with its reason, and the worker goes on."""

from __future__ import annotations

import gzip
import io
import os
import signal
import socket
import socketserver
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import brotli
import pytest
from PIL import Image

from benchmarks import slow_pictures
from crawlproject.models import IMAGE_FORMATS
from demo.pictures import decompression_bomb
from tests.imaging.test_decoders import is_decoder, large_webp, picture, trap
from tests.imaging.test_formats import codestream, icon
from tests.imaging.test_formats import png as broken_png
from tests.test_crawl import KEYS, Crawl
from tests.traps.sitecustomize import CRASH, CRASH_LATER, HOG, SPIN

MIB = 1 << 20
GOOD = picture(size=(300, 200))
FORMATS = ",".join(name for name, module in IMAGE_FORMATS.items() if module is None)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def png(*chunks: bytes, size: tuple[int, int] = (5, 5), pixels: bytes = zlib.compress(bytes(30))) -> bytes:
    header = chunk(b"IHDR", struct.pack(">2L5B", *size, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def frames(format_: str, count: int) -> bytes:
    """Return an animation of so many frames, made of one, and the number of frames in its header."""
    out = io.BytesIO()
    first, second = Image.new("L", (4, 4), 0), Image.new("L", (4, 4), 255)
    first.save(out, format_, save_all=True, append_images=[second], duration=20)
    body = out.getvalue()
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
    tags = {256: side, 257: side, 258: 8, 259: 8, 262: 1, 273: 8, 277: 1, 278: side}
    pixels = zlib.compress(bytes(side) * side, 9)
    tags[279] = len(pixels)
    table = b"".join(struct.pack("<HHLL", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<L", 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + table + bytes(4)


def gif_bomb(side: int) -> bytes:
    """Return a GIF that claims to be so large, its picture being a few bytes."""
    out = io.BytesIO()
    Image.new("L", (4, 4)).save(out, "GIF")
    body = bytearray(out.getvalue())
    struct.pack_into("<HH", body, 6, side, side)
    return bytes(body)


Answer = Callable[[socket.socket], None]


def plain(body: bytes, *headers: str, length: int | None = -1, status: str = "200 OK") -> Answer:
    """Answer with a body; `length` is what Content-Length says, -1 for the truth and None for nothing."""
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length < 0 else length}")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return lambda sock: sock.sendall(head + body)


def coded(name: str, body: bytes) -> Answer:
    return plain(body, f"Content-Encoding: {name}", "Content-Type: image/jpeg")


def drip(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(200):
        sock.sendall(b"\xff")
        time.sleep(0.1)


def endless_headers(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        sock.sendall(b"X-A: %s\r\n" % (b"x" * 1000) * 50)


def endless_line(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        sock.sendall(b"x" * 50_000)


def endless_body(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        sock.sendall(b"x" * 50_000)


def endless_chunks(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        sock.sendall(b"c350\r\n" + b"x" * 50_000 + b"\r\n")


class Server(socketserver.ThreadingTCPServer):
    """Answers each path in its own way, one request a connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        request = self.request.recv(65536)
        path = request.split(b" ")[1].decode().lstrip("/") if request else ""
        answer = self.server.answers.get(path, plain(b"", status="404 Not Found"))  # type: ignore[attr-defined]
        with suppress(OSError):
            answer(self.request)


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    one = Crawl(tmp_path, environment, redis_url)
    yield one
    one.stop()


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


def pictures() -> dict[str, tuple[bytes, str | None]]:
    """Return the pictures, and of those that are refused the reason."""
    zeros = zlib.compress(bytes(100_000_000), 9)
    return {
        "bomb-pixels": (decompression_bomb(), "too many pixels: 20000 x 10000"),
        "bomb-png": (png(pixels=zeros, size=(30_000, 3_000)), None),
        "bomb-png-5x5": (png(pixels=zeros), None),
        "bomb-gif": (gif_bomb(65_535), "too many pixels: 65535 x 65535"),
        "bomb-gif-9000": (gif_bomb(9_000), None),
        "bomb-tiff": (tiff_bomb(9_000), None),
        "bomb-webp": (large_webp(16_000, 16_000), "too many pixels: 16000 x 16000"),
        "bomb-webp-9000": (large_webp(9_000, 9_000), "more memory than the 640 MiB that a picture may have"),
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
        "layers": (slow_pictures.layers(65_535), "JPEG2000: more than 1000 quality layers"),
        "truncated": (GOOD[: len(GOOD) // 2], "JPEG: image file is truncated"),
        "exif": (picture(exif=b"Exif\0\0II*\0\x08\0\0\0" + b"\xff" * 65_000), None),
        "exif-png": (png(chunk(b"eXIf", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 20_000_000)), None),
        "icc": (picture(icc_profile=os.urandom(4_000_000)), None),
        "bomb-ico": (icon(broken_png(30_000, 30_000)), "too many pixels: 30000 x 30000"),
        "bomb-ico-8000": (icon(broken_png(8_000, 8_000)), "ICO: "),
        "bomb-jp2": (codestream(30_000, 30_000, 30_000, 30_000), "too many pixels: 30000 x 30000"),
        "bomb-jp2-9000": (
            codestream(9_000, 9_000, 9_000, 9_000),
            "more memory than the 640 MiB that a picture may",
        ),
        "bomb-jp2-tiles": (codestream(9_000, 9_000, 10, 10), "more memory than the 640 MiB that a picture may"),
        "bomb-qoi": (b"qoif" + struct.pack(">LLBB", 9_000, 9_000, 4, 0) + b"\xfd" * 1_400_000, "more memory than"),
        "comments": (b"P3 900 900 255\n" + b"#\n" * 5_000_000, "PPM: more than 100 comments"),
        "targa": (bytes(200) + b"TRUEVISION-XFILE.\0", "TGA: "),
        "svg": (SVG % b'width="210mm" height="297mm"', None),
        "svg-deep": (SVG % b'viewBox="0 0 4 3"' + b"<g>" * 5_000_000, None),
        "svg-in-html": (b"<!DOCTYPE html><html><body>" + SVG % b'width="4" height="3"', "not a picture in a"),
        "laughs": (LAUGHS + SVG % b'width="&b;" height="3"', "SVG: it declares entities"),
        "crash": (trap(CRASH), "crashes the decoder: killed by SIGSEGV"),
        "crash-later": (trap(CRASH_LATER), None),
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


def servers() -> dict[str, tuple[Answer, str | None]]:
    """Return the servers, and the reasons for those whose pictures cannot be fetched."""
    return {
        "gzip-bomb": (coded("gzip", gzip.compress(bytes(200_000_000), 9)), "larger than DOWNLOAD_MAXSIZE"),
        "deflate-bomb": (coded("deflate", zlib.compress(bytes(200_000_000), 9)), "larger than DOWNLOAD_MAXSIZE"),
        "br-bomb": (coded("br", brotli.compress(bytes(200_000_000), quality=3)), "larger than DOWNLOAD_MAXSIZE"),
        "layers": (coded(", ".join(["gzip"] * 500), GOOD), "500 nested content codings"),
        "no-gzip": (coded("gzip", GOOD), "content coding gzip: "),
        "gzip": (coded("gzip", gzip.compress(GOOD)), None),
        "unknown": (coded("utf-8", GOOD), None),
        "too-long": (plain(GOOD, length=len(GOOD) + 100), "network"),
        "too-short": (plain(GOOD, length=len(GOOD) - 100), "JPEG: image file is truncated"),
        "none": (plain(GOOD, length=None), None),
        "two": (plain(GOOD, f"Content-Length: {len(GOOD)}", length=7), "network"),
        "nonsense": (plain(GOOD, "Content-Length: a", length=None), "network"),
        "claims": (plain(GOOD, length=10**15), "DOWNLOAD_MAXSIZE"),
        "drip": (drip, "timeout"),
        "headers": (plain(GOOD, *(f"X-{n}: {n}" for n in range(200))), None),
        "endless-headers": (endless_headers, "response headers of more than 262144 bytes"),
        "endless-line": (endless_line, "network"),
        "endless-body": (endless_body, "DOWNLOAD_MAXSIZE"),
        "endless-chunks": (endless_chunks, "DOWNLOAD_MAXSIZE"),
    }


def test_hostile_servers_end_with_their_reason_within_a_gibibyte(crawl: Crawl) -> None:
    hostile = servers()
    with Server({name: answer for name, (answer, _) in hostile.items()}) as server:
        seed(crawl, server)
        crawl.start(DOWNLOAD_TIMEOUT="4", DOWNLOAD_MAXSIZE="10000000", CRAWL_MAX_RETRIES="0")
        peak = watch(crawl)
    dead = crawl.dead()
    expected = {name: words for name, (_, words) in hostile.items() if words}
    assert {name: reason for name, reason in dead.items() if expected.get(name, "?") not in reason} == {}
    assert dead.keys() == expected.keys()
    assert {event["identifier"] for event in crawl.events(KEYS.image_events)} == hostile.keys() - expected.keys()
    assert peak < 1024 * MIB
    assert "Traceback" not in crawl.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_ends_worker_and_decoders_in_order(
    crawl: Crawl, number: signal.Signals
) -> None:
    """As Ctrl-C does, or an init system."""
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
            os.kill(pid, number)
        assert worker.wait(60) == 0
    assert not any(map(is_decoder, decoders))
    assert crawl.dead() == {}
    done = crawl.redis.xlen(KEYS.image_events)
    assert 5 < done < 300
    assert crawl.redis.get(KEYS.outstanding) == str(300 - done).encode()
    assert "Traceback" not in crawl.log()
