"""The program of a decoder process: bodies in, facts and thumbnails out, over the socket that is its stdin.

    python -m crawlproject.imaging.child JOB

It loads neither Scrapy nor the settings. Damage by hostile bytes stays in this process: before it reads the first
it gives up all else that it could do (`sandbox.py`), its memory and its CPU time for one picture are limited, and
it ends with its parent. `decoders.py` starts it.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from pkgutil import resolve_name

from crawlproject.imaging import analysis_runner, sandbox
from crawlproject.imaging import codings as content_codings
from crawlproject.imaging import messages as protocol
from crawlproject.imaging.analyse import analyse, load_plugins, set_up_pillow
from crawlproject.imaging.failures import TooLargeImage, UnreadableImage

_json = partial(json.dumps, ensure_ascii=False)  # EXIF may be three times as long in ASCII


def main() -> None:
    """Answer requests until the parent closes its end."""
    job = protocol.Job(**json.loads(sys.argv[1]))
    channel = socket.socket(fileno=0)
    stream = channel.makefile("rb")
    # All that decoding may ever import; nothing can be imported afterwards.
    job, broken = load_plugins(job)
    content_codings.load()
    try:
        functions = analysis_runner.load(job.analyses)
    except analysis_runner.BadAnalysis as error:
        _send(channel, protocol.BAD_ANALYSIS, str(error))
        return
    set_up_pillow()  # which libraries of analyses set otherwise, for the whole process
    idle = _address_space()
    if idle is not None:
        _limit_memory(idle + protocol.MAX_MEMORY, hard=True)
    missing = sandbox.enter(
        threads=any(one.has_threads for one in map(job.plugin, job.formats) if one is not None)
    )
    _send(channel, protocol.READY, _json([missing, broken]))
    # Silence stderr, too: from here on only C libraries write there, and nothing of use.
    os.dup2(1, 2)
    while request := stream.read(protocol.REQUEST.size):
        memory, wanted, names, length = protocol.REQUEST.unpack(request)
        if idle is not None:
            _limit_memory(idle + memory)
        codings = list(filter(None, _receive(stream, names).decode().split(",")))
        body = _receive(stream, length)
        looking = functions if wanted == protocol.ANALYSED else {}
        # Of a share half is for what the estimate leaves out; all memory is tried, whatever is left out.
        expected = memory if memory == protocol.MAX_MEMORY else memory // 2
        _send(channel, *_reply(wanted, codings, body, job, expected, looking))


def _reply(
    wanted: int,
    codings: list[str],
    body: bytes,
    job: protocol.Job,
    expected: int,
    functions: Mapping[str, analysis_runner.Analyse],
) -> tuple[bytes, str, bytes]:
    try:
        if wanted >= protocol.INSPECTIONS:
            inspect = resolve_name(list(job.inspections.values())[wanted - protocol.INSPECTIONS])
            return protocol.INSPECTED, _json(inspect(body, codings, job)), b""
        body = content_codings.decoded(body, codings, job.max_size)
        made = analyse(body, job, expected, functions)
    except TooLargeImage as error:
        return protocol.TOO_LARGE, str(error), b""
    except UnreadableImage as error:
        return protocol.UNREADABLE, _json([str(error), error.facts and asdict(error.facts)]), b""
    except MemoryError as error:
        return protocol.NO_MEMORY, str(error), b""
    if job.return_bodies and codings:
        made = replace(made, body=body)
    return protocol.ANALYSIS, *protocol.packed(made)


def _address_space() -> int | None:
    """Return this process's address space in bytes; None on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return None
    return pages * resource.getpagesize()


def _limit_memory(size: int, hard: bool = False) -> None:
    """Limit the address space, in bytes; if `hard`, for good."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_AS, (size, size if hard else most))


def _receive(stream: BufferedIOBase, length: int) -> bytes:
    body = stream.read(length)
    if len(body) < length:
        raise ConnectionError("the parent is gone")
    return body


def _send(channel: socket.socket, kind: bytes, text: str = "", data: bytes = b"") -> None:
    words = text.encode(errors="backslashreplace")
    channel.sendall(protocol.REPLY.pack(kind, len(words), len(data)) + words + data)


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:  # the parent is gone
        sys.exit(1)
