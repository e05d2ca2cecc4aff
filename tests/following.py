"""Runs `scrapy events --follow` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# The command with shorter times, and nothing else changed.
_IN_HASTE = """
import sys
from crawlproject.state.calls import readers
readers.LEASE_S, readers._TTL_US = 1.0, 1_000_000
from crawlproject.commands import events
events._BLOCK_S = 0.3
from scrapy.cmdline import execute
execute(["scrapy", *sys.argv[1:]])
"""


@contextmanager
def following(
    environment: Mapping[str, str], *arguments: str, in_haste: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run `scrapy events --follow ARGUMENTS`.

    `in_haste`: with a reader's lease of 1 s, and 0.3 s between two attempts.
    """
    scrapy = ["-c", _IN_HASTE] if in_haste else ["-m", "scrapy"]
    process = subprocess.Popen(
        [sys.executable, *scrapy, "events", "--follow", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()
