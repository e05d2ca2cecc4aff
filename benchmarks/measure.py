"""Crawls of the same pictures by several crawlers, in turn: what each took, by the system and the web server."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from redis import Redis

from benchmarks import corpus
from benchmarks.site import Site, link

SOURCES = 4
FAST = 500_000_000  # images of a source: 200 requests a second, so that the worker's own speed is the limit
THUMBNAIL = 640  # pixels
_LONGEST_S = 600.0  # for a run; then something hangs


class Seed(NamedTuple):
    """A picture to fetch, and the file that is served for it."""

    identifier: str
    url: str
    source: str
    picture: Path


@dataclass(frozen=True)
class Ran:
    """A crawl that has ended: CPU seconds by process, peak memory of the largest of them (bytes).

    `last` is when its last file was there (Unix time), `images` how many it has made; `extra` are further figures.
    """

    cpu: Mapping[str, float]
    memory: int
    last: float
    images: int
    extra: Mapping[str, float] = field(default_factory=dict)


# Crawls the seeds; what it writes goes into the folder.
Crawler = Callable[[Sequence[Seed], Path], Ran]


@dataclass(frozen=True)
class Measured:
    """What a run took. Times in seconds, memory in bytes; `fixed` is the CPU time of start and end alone.

    `seconds` are those from the first request to the last file written. `others` is the share of the machine's
    time that all other programs had meanwhile: much above a twentieth, and the figures are not to be trusted.
    """

    ran: Ran
    fixed: float
    seconds: float
    others: float

    @property
    def cpu(self) -> float:
        """CPU seconds per 1,000 images."""
        return sum(self.ran.cpu.values()) / self.ran.images * 1000

    @property
    def marginal(self) -> float:
        """The same in a crawl so long that start and end do not count."""
        return self.cpu - self.fixed / self.ran.images * 1000

    @property
    def speed(self) -> float:
        """Images a second."""
        return self.ran.images / self.seconds


class Usage(NamedTuple):
    """What a Redis has done since it started: CPU seconds, and exchanges with clients.

    A round trip takes one read and one write at least, so there were no more than of the rarer of the two.
    """

    cpu: float
    exchanges: int

    @classmethod
    def of(cls, client: Redis) -> Self:
        """Ask a server."""
        info: dict[str, Any] = client.info("everything")
        return cls(
            info["used_cpu_user"] + info["used_cpu_sys"],
            min(info["total_reads_processed"], info["total_writes_processed"]),
        )

    def since(self, before: Usage) -> Usage:
        """Return the difference."""
        return Usage(self.cpu - before.cpu, self.exchanges - before.exchanges)


def run_to_end(
    command: Sequence[str | Path], folder: Path, environ: Mapping[str, str], output: Path
) -> tuple[float, int]:
    """Run a process to its end; return its CPU seconds and peak memory in bytes.

    Raises:
        SystemExit: it failed; the message is the end of its output.

    """
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _LONGEST_S
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}: {output.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(crawler: Crawler, pictures: Sequence[Path], home: Path, fixed: float = 0.0) -> Measured:
    """Have a crawler crawl the pictures; return what it took."""
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
        busy, began = _busy_seconds(), time.monotonic()
        ran = crawler(seeds, home)
        spent = _busy_seconds() - busy - sum(ran.cpu.values())
        others = spent / (time.monotonic() - began) / (os.cpu_count() or 1)
        first = min(arrivals[0].time for arrivals in site.arrivals().values() if arrivals)
    return Measured(ran, fixed, ran.last - first, others)


def _busy_seconds() -> float:
    """Return the CPU seconds that this machine has worked since it started, all cores together."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = Path("/proc/stat").read_text().split()[1:]
    ticks = sum(map(int, (user, nice, system, interrupts, soft_interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK")


def options(program: str, description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options that the comparisons of pictures share."""
    prog = f"python -m benchmarks.{program}"
    parser = argparse.ArgumentParser(prog=prog, description=(description or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds, help="of each, in turn")
    parser.add_argument("--images", type=int, help="how many to fetch (default: each picture once)")
    parser.add_argument("--kinds", help="only these, such as jpeg,webp (default: all)")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the pictures")
    return parser


def compare(crawlers: Mapping[str, Crawler], chosen: argparse.Namespace) -> None:
    """Have the crawlers crawl in turn; print what they took, as ratios to the last of them, too."""
    kinds = set(chosen.kinds.split(",")) if chosen.kinds else set(corpus.KINDS.values())
    pictures = [path.resolve() for path in corpus.pictures(chosen.corpus) if corpus.kind_of(path) in kinds]
    images = list(islice(cycle(pictures), chosen.images or len(pictures)))
    size = sum(path.stat().st_size for path in images)
    print(f"{len(images)} images from {len(pictures)} pictures, {size / len(images) / 1024:.0f} KiB on average")
    for picture in pictures:
        picture.read_bytes()  # from the disk now, not during the first run
    smallest = sorted(pictures, key=lambda path: path.stat().st_size)[:SOURCES]
    runs: dict[str, list[Measured]] = {name: [] for name in crawlers}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        for number in range(chosen.rounds):
            for place, (name, crawler) in enumerate(crawlers.items()):
                home = Path(temporary) / f"{number}-{place}"
                fixed = sum(measure(crawler, smallest, home / "fixed").ran.cpu.values())
                one = measure(crawler, images, home / "all", fixed)
                runs[name].append(one)
                print(
                    f"round {number + 1}, {name}: {one.cpu:.2f} CPU s, {one.speed:.1f}/s; "
                    f"other programs had {one.others:.0%} of the machine",
                    flush=True,
                )
        _report(runs)


def _report(runs: Mapping[str, Sequence[Measured]]) -> None:
    """Print the medians, and the ratios of the last crawler to the others."""
    ours = list(runs)[-1]
    print(f"\n{os.cpu_count()} cores, median of {len(runs[ours])} rounds")
    print(f"{'':30}{'images':>8}{'CPU s/1,000':>13}{'without start':>15}{'images/s':>10}{'peak MB':>9}")
    for name, some in runs.items():
        cpu, marginal = median(one.cpu for one in some), median(one.marginal for one in some)
        speed, memory = median(one.speed for one in some), median(one.ran.memory for one in some) / 1e6
        print(f"{name:30}{some[-1].ran.images:8}{cpu:13.2f}{marginal:15.2f}{speed:10.1f}{memory:9.0f}")
    for name, some in runs.items():
        for part in some[0].ran.cpu if len(some[0].ran.cpu) > 1 else ():
            each = median(one.ran.cpu[part] / one.ran.images * 1000 for one in some)
            print(f"{name}, of that {part}: {each:.2f} CPU s/1,000")
        for figure in some[0].ran.extra:
            print(f"{name}, {figure}: {median(one.ran.extra[figure] for one in some):.3f}")
    for name in list(runs)[:-1]:
        pairs = list(zip(runs[ours], runs[name], strict=True))
        cpu, marginal, speed = (
            median(getattr(one, what) / getattr(other, what) for one, other in pairs)
            for what in ("cpu", "marginal", "speed")
        )
        print(f"{ours} / {name}: CPU {cpu:.3f}, without start {marginal:.3f}, images/s {speed:.2f}")
