"""Crawls of the same by several crawlers, in turn: what each took, by the system."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ours import options

FAST = 500_000_000  # images of a source: 200 requests a second, so that the worker's own speed is the limit
_LONGEST_S = 600.0  # for a run; then something hangs


@dataclass(frozen=True)
class Ran:
    """A crawl that has ended: CPU seconds by process, peak memory of the largest of them (bytes).

    `done` is how many images or pages it has made in `seconds`; `beside` are CPU seconds that do not count.
    """

    cpu: Mapping[str, float]
    memory: int
    done: int
    seconds: float
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """What a crawl took, and one of next to nothing before it: the cost of start and end.

    `others` is the share of the machine's time that all other programs had meanwhile: much above a twentieth, and
    the figures are not to be trusted.
    """

    ran: Ran
    fixed: Ran
    others: float

    def cpu(self) -> float:
        """Return CPU seconds for a thousand."""
        return sum(self.ran.cpu.values()) / self.ran.done * 1000

    def marginal(self) -> float:
        """Return the same in a crawl so long that start and end do not count."""
        return self.cpu() - sum(self.fixed.cpu.values()) / self.ran.done * 1000

    def speed(self) -> float:
        """Return how many there were a second."""
        return self.ran.done / self.ran.seconds


def redis_cpu(info: Any) -> float:
    """Return the CPU seconds of a Redis since it started, by its answer to INFO."""
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


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


def _busy_seconds() -> float:
    """Return the CPU seconds that this machine has worked since it started, all cores together."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = Path("/proc/stat").read_text().split()[1:]
    ticks = sum(map(int, (user, nice, system, interrupts, soft_interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK")


def comparison(program: str, description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options that the comparisons share."""
    parser = options(program, description)
    parser.add_argument("--rounds", type=int, default=rounds, help="of each, in turn")
    return parser


def compare(crawlers: Iterable[str], crawl: Callable[[str, Path, bool], Ran], rounds: int, unit: str) -> None:
    """Have the crawlers crawl in turn; print what they took, and the ratios of the last of them to the others.

    `crawl` has a crawler crawl in a folder: next to nothing if it is told True, else everything. `unit` is what it
    counts, such as "images".
    """
    runs: dict[str, list[Round]] = {name: [] for name in crawlers}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        for number in range(rounds):
            for place, (name, some) in enumerate(runs.items()):
                home = Path(temporary) / f"{number}-{place}"
                fixed = crawl(name, home / "fixed", True)
                busy, began = _busy_seconds(), time.monotonic()
                ran = crawl(name, home / "all", False)
                spent = _busy_seconds() - busy - sum(ran.cpu.values()) - sum(ran.beside.values())
                some.append(Round(ran, fixed, spent / (time.monotonic() - began) / (os.cpu_count() or 1)))
                print(
                    f"round {number + 1}, {name}: {ran.done} {unit}, {some[-1].cpu():.2f} CPU s/1,000, "
                    f"{some[-1].speed():.1f}/s; other programs had {some[-1].others:.0%} of the machine",
                    flush=True,
                )
    _report(runs, unit)


def _report(runs: Mapping[str, Sequence[Round]], unit: str) -> None:
    """Print the medians, and the ratios of the last crawler to the others."""
    ours = list(runs)[-1]
    print(f"\n{os.cpu_count()} cores, median of {len(runs[ours])} rounds")
    columns = ("CPU s/1,000", "without start", "a core, /s", f"{unit}/s", "peak MB")
    print(f"{'':16}{unit:>8}" + "".join(f"{column:>15}" for column in columns))
    for name, some in runs.items():
        marginal = median(map(Round.marginal, some))
        values = (median(map(Round.cpu, some)), marginal, 1000 / marginal, median(map(Round.speed, some)))
        memory = median(one.ran.memory for one in some) / 1e6
        print(f"{name:16}{some[-1].ran.done:8}" + "".join(f"{value:15.2f}" for value in (*values, memory)))
    for name, some in runs.items():
        for part in some[0].ran.cpu if len(some[0].ran.cpu) > 1 else ():
            each = median(one.ran.cpu[part] / one.ran.done * 1000 for one in some)
            print(f"{name}, of that {part}: {each:.2f} CPU s/1,000")
        for part in some[0].ran.beside:
            each = median((one.ran.beside[part] - one.fixed.beside[part]) / one.ran.done for one in some) * 1000
            print(f"{name}, beside that {part}: {each:.3f} CPU s/1,000")
    for name in list(runs)[:-1]:
        pairs = list(zip(runs[ours], runs[name], strict=True))
        cpu, marginal, speed = (
            median(what(one) / what(other) for one, other in pairs)
            for what in (Round.cpu, Round.marginal, Round.speed)
        )
        print(f"{ours} / {name}: CPU {cpu:.3f}, without start {marginal:.3f}, {unit}/s {speed:.2f}")
