"""The program of a decoder process: bodies in, facts and thumbnails out, over the socket that is its stdin.

    python -m crawlproject.imaging.child LIMITS

It loads neither Scrapy nor our settings. What goes wrong with hostile bytes stays in here: the process has a
bound on its memory and on the CPU time for one picture, and ends with its parent. `decoders.py` starts it.
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

from PIL import AvifImagePlugin

from crawlproject.imaging import decoders
from crawlproject.imaging.analyse import analyse
from crawlproject.imaging.errors import UnreadableImage

_GRACE = 2.0  # seconds of CPU time; the parent's clock is to be first


def main() -> None:
    """Answer requests until the parent closes its end."""
    limits = decoders.Limits(**json.loads(sys.argv[1]))
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # several pictures are decoded at a time instead
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would be as large as the picture that crashed us
    _limit_memory(limits.memory)
    channel = socket.socket(fileno=0)
    _send(channel, decoders.READY)
    # From here on, only C libraries write there, and what they say of a picture is of no use.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while (body := _receive(channel)) is not None:
        # The parent minds the clock. This ends us, by SIGPROF, where there is no parent any more.
        signal.setitimer(signal.ITIMER_PROF, limits.timeout + _GRACE)
        kind, text, thumbnail = _look(body, limits)
        signal.setitimer(signal.ITIMER_PROF, 0)
        del body
        _send(channel, kind, text, thumbnail)


def _look(body: bytes, limits: decoders.Limits) -> tuple[bytes, str, bytes]:
    try:
        made = analyse(body, max_pixels=limits.max_pixels, quality=limits.quality, memory=limits.expected)
    except UnreadableImage as error:
        return decoders.UNREADABLE, str(error), b""
    except MemoryError as error:
        return decoders.NO_MEMORY, str(error), b""
    return decoders.ANALYSIS, json.dumps(asdict(made.facts)), made.thumbnail


def _limit_memory(beyond: int) -> None:
    """Let this process have so many bytes of address space more than it has now (Linux only)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return  # elsewhere only `Limits.expected` bounds it
    limit = pages * resource.getpagesize() + beyond
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _receive(channel: socket.socket) -> bytes | None:
    """Return the next body, None when the parent is done."""
    header = channel.recv(decoders.REQUEST.size, socket.MSG_WAITALL)
    if not header:
        return None
    (length,) = decoders.REQUEST.unpack(header)
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = channel.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return bytes(body)


def _send(channel: socket.socket, kind: bytes, text: str = "", thumbnail: bytes = b"") -> None:
    words = text.encode(errors="backslashreplace")
    channel.sendall(decoders.REPLY.pack(kind, len(words), len(thumbnail)) + words + thumbnail)


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:  # the parent is gone
        sys.exit(1)
