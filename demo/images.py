"""`make demo`: four small sites on this machine, crawled by two workers, each site at its own rate.

Everything is under `.crawl/demo/`, with a Redis of its own that is stopped at the end; a second run starts
afresh. Another crawl in this folder is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.table import Table

from crawlproject import cli, config
from crawlproject.config import SETTINGS
from crawlproject.sources.rates import rate_for
from crawlproject.state import embedded
from crawlproject.state.client import REDIS_TROUBLE, crawl_dir
from crawlproject.status.totals import totals
from demo import sources
from demo.gallery import Arrival, Gallery
from demo.tables import mean_rate, print_table

WORKERS = 2
DEADLINE = 80.0  # seconds for the crawl
LATELY = 5.0  # seconds that a rate seen now is over

SEEDS = sum(source.seeds for source in sources.SOURCES)
SCRAPY = [sys.executable, "-m", "scrapy"]


def main() -> int:
    """Run the demo; return 1 when its outcome is not the expected one."""
    home = crawl_dir() / "demo"
    embedded.stop(home)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print(f"Painting {sum(source.pictures for source in sources.SOURCES)} pictures ...")
    sources.build(home / "sites")
    url = embedded.ensure(home)
    try:
        with Gallery(home / "sites", home / "arrivals.jsonl") as gallery:
            tallies = crawl(home, url, gallery)
            arrivals = gallery.arrivals()
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        embedded.stop(home)
    good = report(tallies, arrivals)
    print(
        f"\nResults:    {home / 'events.jsonl'}\nThumbnails: {home / 'thumbnails'}"
        f"\nLogs:       {home}/worker-*.log\nThe sites' own access log: {home / 'arrivals.jsonl'}"
    )
    return 0 if good else 1


def crawl(
    home: Path, url: str, gallery: Gallery, disturb: Callable[[int], None] = lambda done: None, *, shards: int = 1
) -> dict[str, Any]:
    """Feed the seeds, run the workers until all is done, write the events; return the crawl's totals.

    `disturb` is told again and again how many seeds have ended. Each of several shards has a worker.
    """
    count = shards if shards > 1 else WORKERS
    seeds = sources.write_seeds(home / "sites", gallery.urls)
    environ = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environ |= {
        "REDIS_URL": url,
        "CRAWL_SHARDS": str(shards),
        "CRAWL_SOURCES": str(home / "sites" / sources.CATALOGUE),
        "CRAWL_CONTACT": "mailto:demo@example.org",
        "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        "IMAGES_STORE": str(home / "thumbnails"),
        "MAX_IDLE_TIME_BEFORE_CLOSE": "1",
    }
    subprocess.run([*SCRAPY, "feed", str(seeds)], env=environ, check=True)
    print(f"Crawling {SEEDS} seeds of {len(sources.SOURCES)} sources with {count} workers ...")
    workers = [
        subprocess.Popen(
            [*SCRAPY, "crawl", "images", "--logfile", str(home / f"worker-{number}.log")], env=environ
        )
        for number in range(1, count + 1)
    ]
    try:
        with cli.connected(config.load({"REDIS_URL": url, "CRAWL_SHARDS": str(shards)})) as redis:
            tallies = watch(redis, workers, gallery, disturb)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    subprocess.run([*SCRAPY, "events", str(home / "events.jsonl")], env=environ, check=True)
    return tallies


def watch(
    redis: cli.Connection,
    workers: list[subprocess.Popen[bytes]],
    gallery: Gallery,
    disturb: Callable[[int], None],
) -> dict[str, Any]:
    """Show progress until the workers have closed by themselves; return the totals."""
    deadline = time.monotonic() + DEADLINE
    shown = 0.0
    console = Console(stderr=True)
    columns = BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), "images", TimeRemainingColumn()
    bar = Progress("{task.description}", *columns, console=console)
    crawling = bar.add_task("crawling", total=SEEDS)
    live = Live(console=console, redirect_stdout=False)
    with live if console.is_interactive else nullcontext():
        while True:
            # A master that fails over does not answer for a while.
            tallies = patiently(lambda: redis.run(totals(redis.state)), deadline)
            done = tallies["thumbnails"] + tallies["link_rot"] + tallies["failed"]
            disturb(done)
            bar.update(crawling, completed=done)
            if live.is_started:
                live.update(Group(bar, progress(tallies, gallery.arrivals(), time.time())))
            elif time.monotonic() - shown >= 5:
                shown = time.monotonic()
                print(f"  {done} of {SEEDS} done, {tallies['leased']} in hand", flush=True)
            if all(worker.poll() is not None for worker in workers):
                return tallies
            if time.monotonic() > deadline:
                print(f"not done after {DEADLINE:.0f} s: the workers' logs say why", file=sys.stderr)
                return tallies
            time.sleep(0.25)


def patiently(ask: Callable[[], dict[str, Any]], deadline: float) -> dict[str, Any]:
    """Return what Redis answers, as soon as it does; raise its error when the time is over."""
    while True:
        try:
            return ask()
        except REDIS_TROUBLE:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.25)


def progress(tallies: dict[str, Any], arrivals: list[Arrival], now: float) -> Table:
    """Return how each source stands; the rate seen is that of the last `LATELY` seconds."""
    lately = Counter(arrival["source"] for arrival in arrivals if arrival["t"] > now - LATELY)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("source", min_width=max(len(source.name) for source in sources.SOURCES))
    for head in ("done", "of seeds", "rate allowed", "seen now"):
        table.add_column(head, justify="right")
    for source in sources.SOURCES:
        row = tallies["sources"].get(source.name, defaultdict(int))
        done = row["thumbnails"] + row["link_rot"] + row["failed"]
        rates = (rate_for(source.image_count), lately[source.name] / LATELY)
        style = "green" if done == source.seeds else ""
        table.add_row(source.name, str(done), str(source.seeds), *(f"{rate:.1f}/s" for rate in rates), style=style)
    return table


def report(tallies: dict[str, Any], arrivals: list[Arrival]) -> bool:
    """Print the table; return whether every seed has ended as it should."""
    seen = defaultdict(list)
    for arrival in arrivals:
        seen[arrival["source"]].append(arrival["t"])
    head = ("source", "seeds", "thumbnails", "link rot", "failures", "rate allowed", "rate seen")
    rows: list[tuple[object, ...]] = [head]
    good = True
    for source in sources.SOURCES:
        row = tallies["sources"].get(source.name, defaultdict(int))
        ends = (row["thumbnails"], row["link_rot"], row["failed"])
        good &= ends == (source.pictures, source.link_rot, len(source.unreadable))
        allowed = f"{rate_for(source.image_count):.1f}/s"
        rows.append((source.name, source.seeds, *ends, allowed, f"{mean_rate(seen[source.name]):.1f}/s"))
    print()
    print_table(rows)
    print("\nEvery seed has ended as it should." if good else "\nNOT every seed has ended as it should.")
    return good
