"""`python -m demo pages`: three sites of pages, with traps, and the images that are found on them.

`scrapy crawl pages` and `scrapy crawl images` run side by side: the first follows links, and gives the second the
openly licensed images that it finds. Everything is under `.crawl/demo-pages/`, with a Redis of its own that is
stopped at the end; a second run starts afresh. Another crawl in this folder is not touched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from crawlproject import cli, config
from crawlproject.config import SETTINGS
from crawlproject.sources.rates import rate_for
from crawlproject.state import embedded
from crawlproject.state.client import State, crawl_dir
from crawlproject.status.totals import totals
from demo import pictures
from demo.sites import BEHIND_NOFOLLOW, FORBIDDEN, LICENCE, NOINDEX, Arrival, Site, Sites
from demo.tables import mean_rate, print_table

SCRAPY = [sys.executable, "-m", "scrapy"]
DEADLINE = 180.0  # seconds for the crawl
LATELY = 5.0  # seconds that a rate seen now is over
FOUND_SHARE = 0.9  # of the real pages, beside traps
TOLERANCE = 1.1  # of a rate (docs/behaviour.md)

DELAY = 0.1  # CRAWL_PAGES_DELAY here
BUDGET = 500  # CRAWL_PAGES_BUDGET_MAX here

# What each claims to hold. Its rate follows from it, for both spiders together: 24, 5 and 0.2 requests a second.
CLAIMED: Mapping[str, int] = {
    "naturearchive.example": 60_000_000,
    "citymuseum.example": 12_000_000,
    "villagemuseum.example": 4_000,
}

Event = Mapping[str, Any]


def sites() -> list[Site]:
    """Return the sites, with newly painted pictures."""
    rng = Random(20)
    pool = pictures.scenes(rng)
    nature, city, village = CLAIMED
    return [
        Site(nature, 220, ("calendar", "deep"), _jpegs(120, pool, rng), opt_outs=True, trap_width=10),
        Site(city, 80, ("session", "relative", "facets"), _jpegs(40, pool, rng), trap_width=10),
        Site(village, 3, (), _jpegs(2, pool, rng)),
    ]


def main() -> int:
    """Run the demo; return 1 when a promise did not hold."""
    home = crawl_dir() / "demo-pages"
    embedded.stop(home)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print("Painting the pictures of the sites ...")
    url = embedded.ensure(home)
    broken: list[str] = []
    try:
        with Sites(sites()) as web:
            environ = environment(home, url, web)
            with cli.connected(config.load({"REDIS_URL": url}), "pages") as redis:
                broken += crawl(home, environ, redis, web)
                counts = [
                    redis.run(counts_of(redis.state)) + refused_in(home / "pages.log"),
                    redis.run(counts_of(redis.state.beside("images"))),
                ]
            subprocess.run([*SCRAPY, "events", str(home / "events.jsonl")], env=environ, check=True)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        embedded.stop(home)
    events = [json.loads(line) for line in (home / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    broken += report(web, events, *counts)
    print(
        f"\nEvents:     {home / 'events.jsonl'}\nPages:      {home / 'warc'}\nThumbnails: {home / 'thumbnails'}"
        f"\nLogs:       {home / 'pages.log'}, {home / 'images.log'}"
    )
    print("\n" + ("\n".join(f"NOT as promised: {one}" for one in broken) or "Every promise has held."))
    return 1 if broken else 0


def environment(home: Path, redis_url: str, web: Sites) -> dict[str, str]:
    """Return the environment of the workers; writes the catalogue."""
    rows = [
        {"source_name": domain, "image_count": claimed, "hosts": [domain]} for domain, claimed in CLAIMED.items()
    ]
    (home / "catalogue.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return environ | {
        "REDIS_URL": redis_url,
        "CRAWL_SOURCES": str(home / "catalogue.json"),
        "CRAWL_CONTACT": "mailto:demo@example.org",
        "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        "CRAWL_DNS_SERVERS": web.name_server,
        "CRAWL_PAGES_DELAY": str(DELAY),
        "CRAWL_PAGES_BUDGET_MAX": str(BUDGET),
        "CRAWL_PAGES_STORE": str(home / "warc"),
        "IMAGES_STORE": str(home / "thumbnails"),
    }


def crawl(home: Path, environ: Mapping[str, str], redis: cli.Connection, web: Sites) -> list[str]:
    """Feed the sites' home pages, and crawl until nothing is left; return what went wrong."""
    seeds = home / "seeds.txt"
    seeds.write_text("".join(f"{web.url(domain)}\n" for domain in web.sites), encoding="utf-8")
    subprocess.run([*SCRAPY, "feed", "--spider", "pages", str(seeds)], env=environ, check=True)
    print(
        f"Crawling {len(web.sites)} sites with a worker for pages and one for images.\n"
        f"So that it takes a minute, {DELAY} s pass between two pages of a site, not 70 s (CRAWL_PAGES_DELAY),\n"
        f"and each may admit {BUDGET} links, not up to 1,000,000 (CRAWL_PAGES_BUDGET_MAX)."
    )
    with ExitStack() as running:
        # The worker for pages ends when nothing is left; the other has to wait for what that may still find.
        pages = running.enter_context(worker("pages", home, environ, "-s", "MAX_IDLE_TIME_BEFORE_CLOSE=1"))
        images = running.enter_context(worker("images", home, environ))
        done = watch(redis, pages, images, web)
    if not done:
        return [f"the crawl is not done after {DEADLINE:.0f} s: the logs say why"]
    return [
        f"the worker for {name} has ended with status {process.returncode}: {home / name}.log says why"
        for name, process in (("pages", pages), ("images", images))
        if process.returncode
    ]


@contextmanager
def worker(
    spider: str, home: Path, environ: Mapping[str, str], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker; end it, if it has not ended, when the context does."""
    command = [*SCRAPY, "crawl", spider, "--logfile", str(home / f"{spider}.log"), *options]
    process = subprocess.Popen(command, env=environ)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def watch(
    redis: cli.Connection, pages: subprocess.Popen[bytes], images: subprocess.Popen[bytes], web: Sites
) -> bool:
    """Show progress until all is crawled, or a worker has ended before that; return False if the time is over."""
    deadline, shown = time.monotonic() + DEADLINE, 0.0
    console = Console(stderr=True)
    live = Live(console=console, redirect_stdout=False)
    with live if console.is_interactive else nullcontext():
        while time.monotonic() < deadline:
            of_pages = redis.run(totals(redis.state))
            of_images = redis.run(totals(redis.state.beside("images")))
            if live.is_started:
                live.update(progress(web, of_pages, of_images, time.time()))
            elif time.monotonic() - shown >= 5:
                shown = time.monotonic()
                print(f"  {of_pages['pages']} pages and {of_images['thumbnails']} images done", flush=True)
            if pages.poll() is not None and (pages.returncode or not of_images["outstanding"]):
                return True
            if images.poll() is not None:
                return True
            time.sleep(0.25)
    return False


def progress(web: Sites, pages: Mapping[str, Any], images: Mapping[str, Any], now: float) -> Table:
    """Return how each site stands; the rate seen is that of the last `LATELY` seconds."""
    arrivals = list(web.arrivals)
    lately = Counter(one.source for one in arrivals if one.t > now - LATELY)
    asked = {domain: {one.path for one in arrivals if one.source == domain} for domain in web.sites}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("site", min_width=max(map(len, web.sites)))
    for head in ("real pages", "of", "other pages", "images", "of", "rate allowed", "seen now"):
        table.add_column(head, justify="right")
    for domain, site in web.sites.items():
        of_pages = pages["sources"].get(domain, {}).get("pages", 0)
        of_images = images["sources"].get(domain, {}).get("thumbnails", 0)
        real = len(asked[domain] & site.real())
        counts = (real, len(site.real()), max(of_pages - real, 0), of_images, len(site.licensed()))
        rates = (rate_for(CLAIMED[domain]), lately[domain] / LATELY)
        table.add_row(domain, *map(str, counts), *(f"{rate:.1f}/s" for rate in rates))
    return table


async def counts_of(state: State) -> Counter[str]:
    """Return the totals of a frontier, and what its worker's log says of refused links, as `refused: REASON`."""
    redis: Any = state.redis
    found = Counter(
        {name.decode(): int(count) for name, count in (await redis.hgetall(state.keys.totals)).items()}
    )
    found["outstanding"] = int(await redis.hget(state.keys.counters, "outstanding") or 0)
    return found


def refused_in(log: Path) -> Counter[str]:
    """Return how many links a worker has refused, by what its log says."""
    text, found = log.read_text(encoding="utf-8"), Counter[str]()
    for reason, count in re.findall(r"'links/refused/(\w+)': (\d+)", text):
        found[f"refused: {reason}"] += int(count)
    return found


def report(web: Sites, events: Sequence[Event], pages: Counter[str], images: Counter[str]) -> list[str]:
    """Print what came of it; return what was not as promised, a sentence each."""
    head = (
        "site",
        "real pages",
        "found",
        "in traps",
        "images",
        "crawled",
        "pages/s",
        "at most",
        "all/s",
        "at most",
    )
    rows: list[tuple[object, ...]] = [head]
    broken: list[str] = []
    crawled = [one["url"] for one in events if one["event"] == "pages"]
    fetched = [one for one in events if one["event"] == "image_metadata_updates"]
    for domain, site in web.sites.items():
        base = web.url(domain, "")
        arrivals = [one for one in web.arrivals if one.source == domain and one.path != "/robots.txt"]
        mine = {url.removeprefix(base) for url in crawled if url.startswith(f"{base}/")}
        taken = {one["url"].removeprefix(base) for one in fetched if one["url"].startswith(f"{base}/")}
        real, licensed = site.real(), site.licensed()
        allowed = rate_for(CLAIMED[domain])
        paces = [
            (
                mean_rate([one.t for one in arrivals if not one.path.startswith("/pictures/")]),
                min(1 / DELAY, allowed),
            ),
            (mean_rate([one.t for one in arrivals]), allowed),
        ]
        counts = (len(real), len(mine & real), len(mine - real), len(licensed), len(taken & licensed))
        rows.append((domain, *counts, *(f"{rate:.1f}" for pace in paces for rate in pace)))
        broken += judge_site(site, mine, taken, fetched, arrivals)
        broken += [
            f"{domain} was asked for {seen:.2f} {what} a second, and {most:.2f} are allowed"
            for what, (seen, most) in zip(("pages", "pages and images"), paces, strict=True)
            if seen > most * TOLERANCE
        ]
    print()
    print_table(rows)
    print(
        f"\nLinks: {pages['links_admitted']} admitted, {pages['links_known']} known, "
        f"{pages['links_over_budget']} over budget; refused by {_listed(pages, 'refused: ')}."
        f"\nPages: {pages['pages']} with an event, {pages['link_rot']} link rot, {pages['failed']} dead letters."
        f"\nImages: {images['links_admitted']} found, {images['thumbnails']} with an event, "
        f"{images['link_rot']} link rot, {images['failed']} dead letters."
    )
    return [*broken, *judge_counts(len(web.sites), crawled, fetched, pages, images)]


def judge_site(
    site: Site, pages: set[str], taken: set[str], images: Sequence[Event], arrivals: Sequence[Arrival]
) -> Iterator[str]:
    """Yield what a site was promised and did not get; `pages` and `taken` are the paths that have an event."""
    real, licensed = site.real(), site.licensed()
    if len(pages & real) < FOUND_SHARE * len(real):
        yield (
            f"of the {len(real)} real pages of {site.domain}, {len(pages & real)} were found, "
            f"less than {FOUND_SHARE:.0%}"
        )
    expected = {path for path in licensed if f"/real/{_number_in(path)}.html" in pages}
    if missing := expected - taken:
        yield f"openly licensed images of {site.domain} were found and not crawled: {_some(missing)}"
    asked = {one.path for one in arrivals if one.path.startswith("/pictures/")}
    if others := asked - licensed:
        yield f"{site.domain} was asked for images that have no open licence, or are forbidden: {_some(others)}"
    forbidden = {one.path for one in arrivals if one.path.startswith((BEHIND_NOFOLLOW, FORBIDDEN))}
    if forbidden:
        yield f"{site.domain} was asked for what its robots.txt or a nofollow forbids: {_some(forbidden)}"
    if NOINDEX in pages:
        yield f"{site.domain} has an event for {NOINDEX}, which says noindex"
    wrong = {
        one["url"]
        for one in images
        if one["source"] == site.domain
        and (one.get("licence") != LICENCE or f"/{site.domain}:" not in one.get("found_on", ""))
    }
    if wrong:
        yield f"events of images without their licence, or the page that they were found on: {_some(wrong)}"


def judge_counts(
    seeds: int, pages: Sequence[str], images: Sequence[Event], of_pages: Counter[str], of_images: Counter[str]
) -> Iterator[str]:
    """Yield what was lost, or is there twice: each admitted link ends as one event, link rot or dead letter."""
    for name, urls in (("pages", pages), ("images", [one["url"] for one in images])):
        if doubled := {url for url, times in Counter(urls).items() if times > 1}:
            yield f"{name} have more than one event: {_some(doubled)}"
    for name, admitted, ended, counts in (
        ("pages", of_pages["links_admitted"] + seeds, ("pages", "link_rot", "failed", "not_html"), of_pages),
        ("images", of_images["links_admitted"], ("thumbnails", "link_rot", "failed"), of_images),
    ):
        if counts["outstanding"]:
            yield f"{counts['outstanding']} {name} are outstanding"
        if (total := sum(counts[one] for one in ended)) != admitted:
            yield f"{admitted} {name} were admitted, and {total} have ended"


def _listed(counts: Counter[str], prefix: str) -> str:
    named = (f"{name.removeprefix(prefix)} {count}" for name, count in counts.items() if name.startswith(prefix))
    return ", ".join(named) or "nothing"


def _some(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if others else first


def _number_in(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _jpegs(number: int, pool: list[Any], rng: Random) -> list[bytes]:
    """Return `number` small JPEGs."""
    found = []
    for _ in range(number):
        file = BytesIO()
        pictures.variation(rng, pool, 600).save(file, "JPEG", quality=rng.randint(50, 95))
        found.append(file.getvalue())
    return found
