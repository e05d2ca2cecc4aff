"""One run of one peer: what it took, as the operating system and the web server saw it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import Peer, Seed, Start
from benchmarks.site import Site, link

SOURCES = 4
LONGEST = 600.0  # seconds for a run; then something hangs


@dataclass(frozen=True)
class Measured:
    """What a run took. Times in seconds, memory in bytes; `fixed` is the CPU time of start and end alone.

    `seconds` are those from the first request to the last thumbnail written. CPU time is user and system of
    the peer's process, memory its peak. `others` is the share of the machine's time that all other programs
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
    peer: Peer, pictures: Sequence[Path], home: Path, fixed: float = 0.0
) -> tuple[Measured, dict[Path, Path]]:
    """Run a peer on the pictures; return what it took, and a thumbnail of each picture."""
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
        with peer.prepared(seeds, home) as start:
            busy, began = _busy(), time.monotonic()
            cpu, memory = _run(start, home / "output.txt")
            others = (_busy() - busy - cpu) / (time.monotonic() - began) / (os.cpu_count() or 1)
        files = peer.thumbnails(seeds, home)
        first = min(arrivals[0].time for arrivals in site.arrivals().values() if arrivals)
    last = max(path.stat().st_mtime for path in files.values())
    made = {seed.picture: files[seed.identifier] for seed in seeds if seed.identifier in files}
    return Measured(len(files), cpu, fixed, last - first, memory, others, dict(peer.extra)), made


def start_and_end(peer: Peer, pictures: Sequence[Path], home: Path) -> float:
    """Return the CPU seconds of a run with next to nothing to do: the smallest pictures, one a source."""
    smallest = sorted(pictures, key=lambda path: path.stat().st_size)[:SOURCES]
    return measure(peer, smallest, home)[0].cpu


def _busy() -> float:
    """Return the CPU seconds that this machine has worked since it started, all cores together."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = Path("/proc/stat").read_text().split()[1:]
    ticks = sum(map(int, (user, nice, system, interrupts, soft_interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK")


def _run(start: Start, output: Path) -> tuple[float, int]:
    """Run a process to its end; return its CPU seconds and peak memory in bytes."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            start.command, cwd=start.folder, env=start.environment, stdout=file, stderr=subprocess.STDOUT
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
        sys.exit(f"{' '.join(start.command)} ended with {process.returncode}: {output.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
