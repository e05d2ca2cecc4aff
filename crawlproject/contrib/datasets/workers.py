"""The workers of `scrapy dataset`: processes of this machine, each with its log in a file."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crawlproject.errors import CrawlprojectError
from crawlproject.texts import printable

_IDLE_S = 30  # until one closes that nobody stops any more, as this process was killed
_SOON_S = 10.0  # a worker that ends sooner would do so again


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    log: Path
    since: float


class Workers:
    """`count` workers with these `options`, in a process group of their own: Ctrl-C is for who started them."""

    def __init__(self, count: int, options: Sequence[str], logs: Path) -> None:
        self._options = [*options, "-s", f"MAX_IDLE_TIME_BEFORE_CLOSE={_IDLE_S}"]
        self._count = count
        self._logs = logs
        self._running: list[_Worker] = []

    def look(self) -> None:
        """Start those that do not run: one that was killed, or has found nothing to do, is replaced.

        Raises:
            CrawlprojectError: one has ended as soon as it had begun; the message has its last words.

        """
        for worker in [one for one in self._running if one.process.poll() is not None]:
            self._running.remove(worker)
            if worker.process.returncode and time.monotonic() < worker.since + _SOON_S:
                lines = worker.log.read_text(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "without a word")
                raise CrawlprojectError(
                    f"a worker has ended with {worker.process.returncode}: {printable(last, 500)} ({worker.log})"
                )
        names = {one.log.name for one in self._running}
        for number in range(1, self._count + 1):
            if (name := f"worker-{number}.log") not in names:
                self._running.append(self._started(self._logs / name))

    def _started(self, log: Path) -> _Worker:
        command = [sys.executable, "-m", "scrapy", "crawl", "images", *self._options, "--logfile", str(log)]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as said:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
            )
        return _Worker(process, log, time.monotonic())

    def stop(self, within_s: float) -> None:
        """Stop them in good order: they finish what they have begun. Blocks, and kills who takes longer."""
        for worker in self._running:
            worker.process.terminate()
        end = time.monotonic() + within_s
        for worker in self._running:
            try:
                worker.process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._running.clear()
