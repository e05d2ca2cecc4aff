"""Runs commands in processes of their own, among them `scrapy events --follow`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

# The command with shorter times, and nothing else changed.
_IN_HASTE = """
import sys
from crawlproject.state.calls import readers
readers.LEASE_S, readers._TTL_US = 1.0, 1_000_000
from scrapy.cmdline import execute
execute(["scrapy", *sys.argv[1:]])
"""


@contextmanager
def running(
    environment: Mapping[str, str], *arguments: str, command: Sequence[str] = ("-m", "scrapy")
) -> Iterator[subprocess.Popen[str]]:
    """Run `scrapy ARGUMENTS`; in the end it is killed."""
    pipe = subprocess.PIPE
    words = [sys.executable, *command, *arguments]
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()


def following(
    environment: Mapping[str, str], *arguments: str, in_haste: bool = False
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run `scrapy events --follow ARGUMENTS`.

    `in_haste`: with a reader's lease of 1 s, and 0.3 s between two attempts.
    """
    command = ("-c", _IN_HASTE) if in_haste else ("-m", "scrapy")
    return running(environment, "events", "--follow", *arguments, command=command)
