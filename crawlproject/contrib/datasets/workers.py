"""The workers of `scrapy dataset`: processes of this machine, each with its log in a file."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from crawlproject.errors import CrawlprojectError
from crawlproject.texts import counted, printable

_IDLE_S = 30  # until one closes that has nothing to do
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # here: a process that was forked beside threads must not load it
_MOST_KILLED = 10  # workers, by a signal: more are no accidents


def _end_with_the_command() -> None:
    """Have the kernel stop a worker when the command has died: it would crawl beside the next one.

    It runs between fork and exec, and so calls but one function, which is loaded.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGTERM, 0, 0, 0)))


class Workers:
    """`count` workers with these `options`, in a process group of their own: Ctrl-C is for who started them.

    `say` is told of the start.
    """

    def __init__(self, count: int, options: Sequence[str], logs: Path, say: Callable[[str], object]) -> None:
        self._options = [*options, "-s", f"MAX_IDLE_TIME_BEFORE_CLOSE={_IDLE_S}"]
        self._count = count
        self._logs = logs
        self._say = say
        self._running: dict[Path, subprocess.Popen[bytes]] = {}  # by their logs
        self._killed = 0
        self._started = False

    def look(self) -> None:
        """Start those that do not run: one that was killed, or has found nothing to do, is replaced.

        Raises:
            CrawlprojectError: one has ended for a reason, and others would; the message has its last words.

        """
        for log, process in list(self._running.items()):
            if (status := process.poll()) is None:
                continue
            del self._running[log]
            self._killed += status < 0
            if self._killed > _MOST_KILLED:
                raise CrawlprojectError(
                    f"{self._killed} workers were killed, the last by signal {-status}: see whether memory is "
                    f"short, and start again ({log})"
                )
            if status > 0:
                lines = log.read_text(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "without a word")
                raise CrawlprojectError(f"a worker ended with {status}: {printable(last, 500)} ({log})")
        if not self._started:
            self._started = True
            self._say(f"{counted(self._count, 'worker')}, logs: {self._logs}; Ctrl-C stops them")
        for number in range(1, self._count + 1):
            log = self._logs / f"worker-{number}.log"
            if log not in self._running:
                self._running[log] = self._start(log)

    def _start(self, log: Path) -> subprocess.Popen[bytes]:
        words = sys.orig_argv
        program = words[1 : words.index("dataset")] if "dataset" in words else ["-m", "scrapy"]  # as it was called
        command = [sys.executable, *program, "crawl", "images", *self._options, "--logfile", str(log)]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as said:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0,
                preexec_fn=_end_with_the_command,  # noqa: PLW1509 - see there
            )  # fmt: skip

    def stop(self, within_s: float) -> None:
        """Stop them in good order: they finish what they have begun. Blocks, and kills who takes longer."""
        for process in self._running.values():
            process.terminate()
        end = time.monotonic() + within_s
        for process in self._running.values():
            try:
                process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
