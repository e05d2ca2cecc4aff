"""One run of one crawler: what it took, as the operating system and the web server saw it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.site import Site, link

SOURCES = 4
LONGEST = 600.0  # seconds for a run; then something hangs


class Seed(NamedTuple):
    """A picture to fetch, and the file that is served for it."""

    identifier: str
    url: str
    source: str
    picture: Path


@dataclass(frozen=True)
class Run:
    """A crawl to start: one process, which ends by itself when all is done.

    `thumbnails` are the files that it is to make, in the order of the seeds; `extra` gets further figures, name
    to value, when it has ended.
    """

    command: list[str]
    folder: Path
    environment: Mapping[str, str]
    thumbnails: Sequence[Path]
    extra: dict[str, float] = field(default_factory=dict)


# Prepares a crawl of the seeds, which can run while the context lasts; what it writes goes into the empty folder.
Crawler = Callable[[Sequence[Seed], Path], AbstractContextManager[Run]]


@dataclass(frozen=True)
class Measured:
    """What a run took. Times in seconds, memory in bytes; `fixed` is the CPU time of start and end alone.

    `seconds` are those from the first request to the last thumbnail written. CPU time is user and system of
    the crawler's process, memory its peak. `others` is the share of the machine's time that all other programs
    had meanwhile, nginx and Redis among them: much above a twentieth, and the figures are not to be trusted.
    """

    images: int
    cpu: float
    fixed: float
    seconds: float
    memory: int
    others: float
    extra: Mapping[str, float]

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds per 1,000 thumbnails."""
        return self.cpu / self.images * 1000

    @property
    def marginal(self) -> float:
        """The same in a crawl so long that start and end do not count."""
        return (self.cpu - self.fixed) / self.images * 1000

    @property
    def speed(self) -> float:
        """Thumbnails a second."""
        return self.images / self.seconds


def measure(
    crawler: Crawler, pictures: Sequence[Path], home: Path, fixed: float = 0.0
) -> tuple[Measured, dict[Path, Path]]:
    """Run a crawler on the pictures; return what it took, and a thumbnail of each picture."""
    folders = {f"source{number}": home / "sites" / str(number) for number in range(SOURCES)}
    shares = {name: pictures[number::SOURCES] for number, name in enumerate(folders)}
    names = {name: link(share, folders[name]) for name, share in shares.items()}
    with Site(folders, home / "nginx") as site:
        seeds = [
            Seed(f"{source}-{file}", f"{site.urls[source]}/{file}", source, picture)
            for source, share in shares.items()
            for file, picture in zip(names[source], share, strict=True)
        ]
        random.Random(0).shuffle(seeds)
        with crawler(seeds, home) as run:
            busy, began = busy_seconds(), time.monotonic()
            cpu, memory = run_to_end(run, home / "output.txt")
            others = (busy_seconds() - busy - cpu) / (time.monotonic() - began) / (os.cpu_count() or 1)
        first = min(arrivals[0].time for arrivals in site.arrivals().values() if arrivals)
    made = [(seed.picture, file) for seed, file in zip(seeds, run.thumbnails, strict=True) if file.exists()]
    last = max(file.stat().st_mtime for _, file in made)
    return Measured(len(made), cpu, fixed, last - first, memory, others, run.extra), dict(made)


def start_and_end(crawler: Crawler, pictures: Sequence[Path], home: Path) -> float:
    """Return the CPU seconds of a run with next to nothing to do: the smallest pictures, one a source."""
    smallest = sorted(pictures, key=lambda path: path.stat().st_size)[:SOURCES]
    return measure(crawler, smallest, home)[0].cpu


def busy_seconds() -> float:
    """Return the CPU seconds that this machine has worked since it started, all cores together."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = Path("/proc/stat").read_text().split()[1:]
    ticks = sum(map(int, (user, nice, system, interrupts, soft_interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK")


def run_to_end(run: Run, output: Path) -> tuple[float, int]:
    """Run a process to its end; return its CPU seconds and peak memory in bytes."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            run.command, cwd=run.folder, env=run.environment, stdout=file, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + LONGEST
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(run.command)} ended with {process.returncode}: {output.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
