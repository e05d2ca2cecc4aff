"""The proof: real pictures crawled as several sources, every seed accounted for, every rate kept.

    python -m benchmarks.real_crawl [--workers N] [--kill] [--identify] [--keep DIR]

Serves the corpus (corpus.py) as sources of different claimed sizes with nginx (site.py), adds dead links and
broken files, crawls it all with N workers, and compares: each seed with the events and dead letters, each
source's rate with the arrivals that nginx has logged. With --kill the first worker is killed (SIGKILL) halfway.
With --identify each event is compared with what ImageMagick says of the file. Takes half a minute, with
--identify two minutes more; ends with 1 when something is not as promised.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import corpus, identify
from benchmarks.ours import Crawl
from benchmarks.roundtrips import Usage
from benchmarks.site import Site, link, mean_rate, worst_second
from crawlproject.sources.rates import rate_for

# Claimed sizes, for rates that two cores can serve: 40, 20, 8 and 0.2 a second.
SIZES = {"gallery": 100_000_000, "museum": 50_000_000, "library": 20_000_000, "parish": 4}
DEADLINE = 120.0  # seconds
HEARTBEAT_TIMEOUT = 3.0  # seconds, with --kill
DEAD_LINKS = 5  # a source; 404


@dataclass
class Plan:
    """What is to be crawled: each source's folder, and each identifier with its source, name and file."""

    folders: dict[str, Path]
    seeds: dict[str, tuple[str, str, Path | None]] = field(default_factory=dict)

    def add(self, source: str, name: str, picture: Path | None) -> None:
        """Add a seed; `picture` is None when no image may come of it."""
        self.seeds[f"{source}-{len(self.seeds)}"] = (source, name, picture)

    def write(self, path: Path, urls: Mapping[str, str]) -> None:
        """Write the seeds as `scrapy feed` reads them."""
        lines = [f"{who}\t{urls[source]}/{name}\t{source}\n" for who, (source, name, _) in self.seeds.items()]
        path.write_text("identifier\turl\tsource\n" + "".join(lines))


def plan(pictures: list[Path], home: Path) -> Plan:
    """Share the pictures out so that all sources have work for the same time; add what is broken or gone."""
    rates = {name: rate_for(size) for name, size in SIZES.items()}
    result = Plan({name: home / name for name in SIZES})
    start = 0
    for name, rate in rates.items():
        count = max(4, round(len(pictures) * rate / sum(rates.values())))
        share = pictures[start : start + count]
        start += count
        for file, picture in zip(link(share, result.folders[name]), share, strict=True):
            result.add(name, file, picture)
        if rate >= 1:
            for number in range(DEAD_LINKS):
                result.add(name, f"gone-{number}.jpg", None)
    jpeg = next(path for path in pictures if corpus.kind_of(path) == "jpeg").read_bytes()
    for name, body in {
        "half.jpg": jpeg[: len(jpeg) // 2],
        "page.jpg": b"<!DOCTYPE html><title>Not here</title>",
        "empty.png": b"",
        "noise.jpg": jpeg[:2] + bytes(range(256)) * 64,
    }.items():
        (result.folders["gallery"] / name).write_bytes(body)
        result.add("gallery", name, None)
    return result


def crawl(run: Crawl, seeds: Path, workers: int, *, kill: bool) -> list[str]:
    """Feed and crawl until all workers have closed by themselves; return the violations."""
    print(run.scrapy("feed", str(seeds)).strip())
    total = sum(1 for _ in seeds.open()) - 1
    broken = []
    began = time.monotonic()
    running = [run.worker(number) for number in range(1, workers + 1)]
    try:
        while any(worker.poll() is None for worker in running):
            if time.monotonic() - began > DEADLINE:
                broken.append(f"a worker still runs after {DEADLINE:.0f} s")
                break
            time.sleep(0.1)
            if kill and len(list(run.thumbnails.glob("*/*.jpg"))) > total / 2:
                kill = False
                held = run.totals()["leased"]
                running[0].kill()
                print(
                    f"killed worker 1 of {workers} after {time.monotonic() - began:.1f} s; {held} leases were out"
                )
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            worker.wait(30)
    took = time.monotonic() - began
    print(f"crawled by {workers} workers in {took:.1f} s, start and idle time at the end included")
    return broken


def account(seeds: Plan, run: Crawl, events: list[dict[str, Any]]) -> list[str]:
    """Print what became of the seeds; return the violations."""
    dead = run.dead_letters()
    ends = Counter(end["identifier"] for end in (*events, *dead))
    kinds = Counter(event["event"] for event in events)
    missing = seeds.seeds.keys() - ends.keys()
    doubled = [who for who, count in ends.items() if count > 1]
    unasked = ends.keys() - seeds.seeds.keys()
    gone = sum(name.startswith("gone-") for _, name, _ in seeds.seeds.values())
    no_file = [e for e in events if e.get("thumbnail") and not (run.thumbnails / e["thumbnail"]).is_file()]
    print(
        f"{len(seeds.seeds)} seeds: {kinds['image_metadata_updates']} image events, {kinds['link_rot']} link rot, "
        f"{len(dead)} dead letters; missing {len(missing)}, doubled {len(doubled)}, not asked for {len(unasked)}, "
        f"thumbnails missing {len(no_file)}"
    )
    for letter in dead:
        print(f"  dead: {letter['identifier']} {letter['url'].rpartition('/')[2]}: {letter['reason']}")
    broken = [f"{who} is missing" for who in sorted(missing)] + [f"{who} is doubled" for who in sorted(doubled)]
    broken += [f"{who} was never asked for" for who in sorted(unasked)]
    broken += [f"no thumbnail of {event['identifier']}" for event in no_file]
    if kinds["link_rot"] != gone:
        broken.append(f"{kinds['link_rot']} link rot events of {gone} dead links")
    broken += [
        f"an image event of {event['identifier']}, which is broken"
        for event in events
        if event["event"] == "image_metadata_updates" and seeds.seeds[event["identifier"]][2] is None
    ]
    return broken


def rates(site: Site, *, means: bool) -> list[str]:
    """Print each source's rate as nginx saw it; return the violations (`means`: of mean rates too)."""
    broken = []
    print(f"{'source':10}{'arrivals':>10}{'rate':>9}{'mean seen':>11}{'worst second':>14}{'allowed':>9}")
    for name, arrivals in site.arrivals().items():
        times = [arrival.time for arrival in arrivals]
        rate, mean, worst = rate_for(SIZES[name]), mean_rate(times), worst_second(times)
        allowed = 1.1 * rate + 1
        print(f"{name:10}{len(times):10}{rate:9.2f}{mean:11.2f}{worst:14}{allowed:9.2f}")
        if worst > allowed:
            broken.append(f"{name}: {worst} requests in a second, {allowed:.2f} allowed")
        if means and mean < 0.95 * rate:
            broken.append(f"{name}: {mean:.2f} a second, less than 95 % of {rate:.2f}")
    return broken


def main() -> int:
    """Run the proof; return 1 on a violation."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_crawl", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="kill one of the workers (two at least) halfway")
    parser.add_argument("--identify", action="store_true", help="compare each event with ImageMagick's identify")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the pictures")
    parser.add_argument("--keep", type=Path, help="leave logs and events in this folder, which must be new")
    options = parser.parse_args()
    workers = max(options.workers, 2) if options.kill else options.workers
    pictures = corpus.pictures(options.corpus)
    settings = {"CRAWL_HEARTBEAT_TIMEOUT": HEARTBEAT_TIMEOUT} if options.kill else {}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        home = options.keep or Path(temporary) / "run"
        home.mkdir(parents=True)
        seeds = plan(pictures, home / "sites")
        with Site(seeds.folders, home / "nginx") as site, Crawl(home / "crawl", SIZES, settings) as run:
            seeds.write(home / "seeds.tsv", site.urls)
            before = Usage.of(run.redis)
            broken = crawl(run, home / "seeds.tsv", workers, kill=options.kill)
            trips = Usage.of(run.redis).since(before).exchanges / len(seeds.seeds)
            print(f"round trips to Redis an image: at most {trips:.2f}")
            events = run.events()
            broken += account(seeds, run, events) + rates(site, means=not options.kill)
        if options.identify:
            files = {who: picture for who, (_, _, picture) in seeds.seeds.items() if picture is not None}
            broken += identify.compare([event for event in events if "width" in event], files)
    for violation in broken:
        print(f"VIOLATION: {violation}")
    print("violations: " + (str(len(broken)) if broken else "none"))
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: see above")
