"""Pages a second of a core: crawlproject's `pages` against bare Scrapy.

    python -m benchmarks.page_crawl [--rounds N] [--tls] [--pages N] [--corpus DIR]

Both crawl the same manuals (HTML out of Debian packages) from the same nginx, on four addresses, link by link, in
one run. Bare Scrapy (plain_spider.py) has its LinkExtractor and its frontier in memory, and neither reads
robots.txt nor paces nor stores anything. crawlproject has Redis, robots.txt, send slots, leases and the WARC
store; only the delay between a domain's pages is off. Prints, as median of the rounds, HTML pages per second of
the crawler's CPU time (start and end left out), for crawlproject the CPU time of Redis for each page, and of each
of its crawls the links that were left out, by rule. Needs nginx.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.measure import FAST, Usage, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.site import Site
from crawlproject.status.source_status import LINK_RESULTS

SITES = 4
LINKS = 400  # on each page of a site's index: all of them within the bytes that are read of a page
_FOLLOWED = ("admitted", "known")  # of what becomes of links
_PLAIN = Path(__file__).with_name("plain_spider.py")


class Ran(NamedTuple):
    """What a crawl took: CPU seconds of the crawler, its peak memory (bytes), and CPU seconds of Redis."""

    cpu: float
    memory: int
    redis: float = 0.0


class Measured(NamedTuple):
    """What was seen of a crawl: HTML pages sent by the sites, seconds."""

    ran: Ran
    pages: int
    seconds: float


# Crawls from the URLs in a file to the end; what it writes goes into the folder.
Crawler = Callable[[Path, Path, Sequence[str]], Ran]


def bare_scrapy(listed: Path, home: Path, hosts: Sequence[str]) -> Ran:
    """Run the plain spider."""
    command = [*SCRAPY, "runspider", str(_PLAIN), "-a", f"urls={listed}", "--logfile", "log.txt"]
    return Ran(*run_to_end(command, home, os.environ, home / "output.txt"))


def ours(listed: Path, home: Path, hosts: Sequence[str]) -> Ran:
    """Run a worker of crawlproject with a Redis of its own and the WARC store."""
    settings: dict[str, object] = {
        "CRAWL_PAGES_DELAY": 0,
        "CRAWL_PAGES_STORE": home / "warc",
        "CRAWL_PAGES_IMAGES": "none",
        "CRAWL_TLS_FAILURES": "record",
    }
    with Crawl(home / "crawl", dict.fromkeys(hosts, FAST), settings) as crawl:
        crawl.scrapy("feed", "--spider", "pages", str(listed))
        command = [*SCRAPY, "crawl", "pages", "--logfile", str(home / "worker.log")]
        before = Usage.of(crawl.redis)
        cpu, memory = run_to_end(command, ROOT, crawl.environment, home / "output.txt")
        used = Usage.of(crawl.redis).since(before)
        totals = crawl.totals("pages")
    left_out = {name: totals[f"links_{name}"] for name in LINK_RESULTS if name not in _FOLLOWED}
    if told := ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in left_out.items() if count):
        print(f"crawlproject has left out links: {told}", flush=True)
    return Ran(cpu, memory, used.cpu)


CRAWLERS: dict[str, Crawler] = {"bare Scrapy": bare_scrapy, "crawlproject": ours}


def lay_out(manuals: Mapping[str, Sequence[Path]], folder: Path, most: int | None) -> dict[str, Path]:
    """Make SITES folders of the manuals, each with an index that leads to all of its pages; return them by name.

    A manual is where it was in its package, so that the links in it lead on.
    """
    folders = {f"site{number}": folder / str(number) for number in range(SITES)}
    listed: dict[str, list[str]] = {name: [] for name in folders}
    for package, paths in sorted(manuals.items(), key=lambda manual: -len(manual[1])):
        site = min(folders, key=lambda name: len(listed[name]))
        root = next(parent for parent in paths[0].parents if parent.name == package)
        folders[site].mkdir(parents=True, exist_ok=True)
        (folders[site] / package).symlink_to(root.resolve())
        listed[site] += [f"/{package}/{path.relative_to(root)}" for path in paths]
    for site, names in listed.items():
        chosen = list(islice(names, most and most // SITES))
        for number, first in enumerate(range(0, len(chosen), LINKS)):
            some = chosen[first : first + LINKS]
            links = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in some)
            onward = f'<a href="/index{number + 1}.html">more</a>' if len(some) == LINKS else ""
            page = f"<!DOCTYPE html><title>{site} {number}</title><ul>{links}</ul>{onward}"
            (folders[site] / f"index{number or ''}.html").write_text(page)
    return folders


def measure(crawler: Crawler, folders: Mapping[str, Path], home: Path, *, tls: bool) -> Measured:
    """Run a crawler on the sites; return what it took."""
    home.mkdir(parents=True)
    with Site(folders, home / "nginx", apart=True, tls=tls) as site:
        listed = home / "urls.txt"
        listed.write_text("".join(f"{url}/index.html\n" for url in site.urls.values()))
        began = time.monotonic()
        ran = crawler(listed, home, list(site.hosts.values()))
        seconds = time.monotonic() - began
        sent = [one for arrivals in site.arrivals().values() for one in arrivals]
    pages = sum(one.status == 200 and one.path.partition("?")[0].endswith(".html") for one in sent)
    return Measured(ran, pages, seconds)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_crawl", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="of each, in turn")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--pages", type=int, help="how many the sites' indexes list at most (default: all)")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the manuals")
    chosen = parser.parse_args()
    manuals = corpus.pages(chosen.corpus)
    runs: dict[str, list[tuple[Measured, Measured]]] = {name: [] for name in CRAWLERS}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        folders = lay_out(manuals, Path(temporary) / "sites", chosen.pages)
        nothing = {name: Path(temporary) / "nothing" / name for name in folders}
        for empty in nothing.values():
            empty.mkdir(parents=True)
            (empty / "index.html").write_text("<title>nothing</title>")
        for number in range(chosen.rounds):
            for name, crawler in CRAWLERS.items():
                home = Path(temporary) / f"{number}-{name.replace(' ', '-')}"
                fixed = measure(crawler, nothing, home / "fixed", tls=chosen.tls)
                one = measure(crawler, folders, home / "all", tls=chosen.tls)
                runs[name].append((fixed, one))
                print(
                    f"round {number + 1}, {name}: {one.pages} pages, {one.ran.cpu:.1f} CPU s, {one.seconds:.1f} s",
                    flush=True,
                )
    print(f"{'':22}{'pages':>7}{'pages/s a core':>16}{'pages/s':>9}{'peak MB':>9}{'Redis, us a page':>18}")
    for name, some in runs.items():
        a_core = median(one.pages / (one.ran.cpu - fixed.ran.cpu) for fixed, one in some)
        speed = median(one.pages / one.seconds for _, one in some)
        memory = median(one.ran.memory for _, one in some) / 1e6
        redis = median((one.ran.redis - fixed.ran.redis) / one.pages for fixed, one in some) * 1e6
        print(f"{name:22}{some[-1][1].pages:7}{a_core:16.1f}{speed:9.1f}{memory:9.0f}{redis:18.1f}")


if __name__ == "__main__":
    main()
