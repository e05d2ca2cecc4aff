"""How late a busy worker is: its timers, its requests at the gate, and what it makes of its sources' rates.

    python -m benchmarks.lateness [--rounds N] [--images N] [--rate N] [--also PATH]

One worker with its decoders crawls pictures of the corpus from nginx, as four sources that together bear `--rate`
requests a second, which should be somewhat less than it could do. A timer of 10 ms notes by how much it is late
(late/late.py), each request by how much after its slot it leaves the scheduler. `--also` adds another checkout of
crawlproject; the two take turns. Prints for each, over all rounds, the median, p99 and maximum in ms, the share of
the rate, and the CPU seconds of worker and decoders.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from statistics import mean, median, quantiles

from benchmarks import corpus
from benchmarks.against_img2dataset import MOST_PIXELS, pixels
from benchmarks.compare import ours
from benchmarks.measure import SOURCES, Measured, Run, Seed, measure
from benchmarks.ours import ROOT
from crawlproject.sources.rates import LARGE, MAXIMUM_RATE, MINIMUM_RATE, SMALL

_EXTENSION = Path(__file__).with_name("late")


@dataclass
class Late:
    """What was seen of one version, over all rounds; lateness in ms."""

    runs: list[Measured] = field(default_factory=list)
    timers: list[float] = field(default_factory=list)
    gate: list[float] = field(default_factory=list)


@contextmanager
def watched(seeds: Sequence[Seed], home: Path, *, checkout: Path, claimed: int, late: Path) -> Iterator[Run]:
    """Run a worker that writes into `late` how late it was."""
    with ours(seeds, home, checkout=checkout, claimed=claimed) as run:
        environment = {**run.environment, "PYTHONPATH": str(_EXTENSION), "LATE_FILE": str(late)}
        command = [*run.command, "-s", "EXTENSIONS=" + json.dumps({"late.Late": 1000})]
        yield replace(run, command=command, environment=environment)


def main() -> None:
    """Run the versions in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lateness", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each version, in turn")
    parser.add_argument("--images", type=int, default=1500, help="fetched in a round")
    parser.add_argument("--rate", type=float, default=50, help="requests a second of all sources together")
    parser.add_argument("--also", type=Path, metavar="PATH", help="another checkout of crawlproject")
    options = parser.parse_args()
    pictures = [path for path in corpus.pictures() if pixels(path) <= MOST_PIXELS]
    images = list(islice(cycle(pictures), options.images))
    for picture in images:
        picture.read_bytes()  # from the disk now, not during the first run
    share = (options.rate / SOURCES - MINIMUM_RATE) / (MAXIMUM_RATE - MINIMUM_RATE)
    claimed = round(share * (LARGE - SMALL))
    versions = {str(path): Late() for path in (options.also, ROOT) if path is not None}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        for number, (place, (checkout, late)) in product(range(options.rounds), enumerate(versions.items())):
            home = Path(temporary) / f"{number}-{place}"
            file = Path(temporary) / f"{number}-{place}.json"
            crawler = partial(watched, checkout=Path(checkout).resolve(), claimed=claimed, late=file)
            run, _ = measure(crawler, images, home)
            seen = json.loads(file.read_text())
            late.runs.append(run)
            late.timers += seen["timers"]
            late.gate += seen["gate"]
            print(
                f"round {number + 1}, {checkout}: {run.speed:.1f}/s; other programs had {run.others:.0%}",
                flush=True,
            )
    report(versions, options.rate)


def report(versions: dict[str, Late], rate: float) -> None:
    """Print a row for each version."""
    print("\n| version | timers p50, p99, max | gate p50, p99, max | of the rate | CPU s per 1,000 |")
    print("|---|---|---|---|---|")
    for checkout, late in versions.items():
        columns = [", ".join(f"{ms:.1f}" for ms in _figures(some)) for some in (late.timers, late.gate)]
        speed = mean(run.speed for run in late.runs) / rate
        cpu = median(run.cpu_per_thousand for run in late.runs)
        print(f"| {Path(checkout).resolve().name} | {' | '.join(columns)} | {speed:.1%} | {cpu:.1f} |")
    print(f"{os.cpu_count()} cores; ms late")


def _figures(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), quantiles(values, n=100)[98], max(values)


if __name__ == "__main__":
    main()
