"""The program of a decoder process: bodies in, facts and thumbnails out, over the socket that is its stdin.

    python -m crawlproject.imaging.child JOB

It loads neither Scrapy nor the settings. Damage by hostile bytes stays in this process: its memory and its CPU
time for one picture are limited, and it ends with its parent. `decoders.py` starts it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path

from crawlproject.imaging import messages as protocol
from crawlproject.imaging.analyse import analyse, load_plugins
from crawlproject.imaging.codings import decoded
from crawlproject.imaging.failures import TooLargeImage, UnreadableImage

_GRACE_S = 2.0  # of CPU time beyond the time-out: the parent's timer should fire first
_WALL_GRACE_S = 5.0  # of wall-clock time, likewise


def main() -> None:
    """Answer requests until the parent closes its end."""
    job = protocol.Job(**json.loads(sys.argv[1]))
    load_plugins(*job.formats)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would be as large as the decoded picture
    channel = socket.socket(fileno=0)
    _send(channel, protocol.READY)
    # Silence stderr: from here on only C libraries write there, and nothing of use.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    idle = _address_space()
    while request := channel.recv(protocol.REQUEST.size, socket.MSG_WAITALL):
        expected, memory, names, length = protocol.REQUEST.unpack(request)
        if idle is not None:
            resource.setrlimit(resource.RLIMIT_AS, (idle + memory, resource.RLIM_INFINITY))
        # The parent enforces the time-out. These timers end this process (SIGPROF, SIGALRM) if the parent is gone.
        signal.setitimer(signal.ITIMER_PROF, job.timeout + _GRACE_S)
        signal.setitimer(signal.ITIMER_REAL, job.timeout + _WALL_GRACE_S)
        codings = list(filter(None, _receive(channel, names).decode().split(",")))
        reply = _look(codings, _receive(channel, length), job, expected)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(channel, *reply)


def _look(codings: list[str], body: bytes, job: protocol.Job, expected: int) -> tuple[bytes, str, bytes]:
    try:
        body = decoded(body, codings, job.max_size)
        made = analyse(
            body,
            max_pixels=job.max_pixels,
            longest_side=job.longest_side,
            quality=job.quality,
            form=job.form,
            formats=job.formats,
            memory=expected,
        )
    except TooLargeImage as error:
        return protocol.TOO_LARGE, str(error), b""
    except UnreadableImage as error:
        return protocol.UNREADABLE, json.dumps([str(error), error.facts and asdict(error.facts)]), b""
    except MemoryError as error:
        return protocol.NO_MEMORY, json.dumps([str(error), getattr(error, "needed", 0)]), b""
    return protocol.ANALYSIS, json.dumps(asdict(made.facts)), made.thumbnail


def _address_space() -> int | None:
    """Return this process's address space in bytes; None on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return None
    return pages * resource.getpagesize()


def _receive(channel: socket.socket, length: int) -> bytes:
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = channel.recv_into(view)
        if not count:
            raise ConnectionError("the parent is gone")
        view = view[count:]
    return bytes(body)


def _send(channel: socket.socket, kind: bytes, text: str = "", thumbnail: bytes = b"") -> None:
    words = text.encode(errors="backslashreplace")
    channel.sendall(protocol.REPLY.pack(kind, len(words), len(thumbnail)) + words + thumbnail)


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:  # the parent is gone
        sys.exit(1)
