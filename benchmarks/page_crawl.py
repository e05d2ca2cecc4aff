"""Pages a second of a core: crawlproject's `pages` against bare Scrapy.

    python -m benchmarks.page_crawl [--rounds N] [--tls] [--pages N] [--corpus DIR]

Both crawl the same manuals (HTML out of Debian packages) from the same nginx, on four addresses, link by link, in
one run. Bare Scrapy (plain_spider.py) has its LinkExtractor and its frontier in memory, and neither reads
robots.txt nor paces nor stores anything. crawlproject has Redis, robots.txt, send slots, leases and the WARC
store; only the delay between a domain's pages is off. Prints what measure.py says, where Redis is beside, and of
each of crawlproject's crawls the links that were left out, by rule. Needs nginx.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.measure import FAST, Ran, compare, comparison, redis_cpu, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.site import Site
from crawlproject.status.source_status import LINK_RESULTS

SITES = 4
LINKS = 400  # on each page of a site's index: all of them within the bytes that are read of a page
_FOLLOWED = ("admitted", "known")  # of what becomes of links
_PLAIN = Path(__file__).with_name("plain_spider.py")


class Spent(NamedTuple):
    """CPU seconds of a crawler, its peak memory (bytes), and CPU seconds of Redis."""

    cpu: float
    memory: int
    redis: float = 0.0


# Crawls from the URLs in a file to the end; what it writes goes into the folder.
Crawler = Callable[[Path, Path, Sequence[str]], Spent]


def bare_scrapy(listed: Path, home: Path, hosts: Sequence[str]) -> Spent:
    """Run the plain spider."""
    command = [*SCRAPY, "runspider", str(_PLAIN), "-a", f"urls={listed}", "--logfile", "log.txt"]
    return Spent(*run_to_end(command, home, os.environ, home / "output.txt"))


def ours(listed: Path, home: Path, hosts: Sequence[str]) -> Spent:
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
        before = redis_cpu(crawl.redis)
        cpu, memory = run_to_end(command, ROOT, crawl.environment, home / "output.txt")
        used = redis_cpu(crawl.redis) - before
        totals = crawl.totals("pages")
    left_out = {name: totals[f"links_{name}"] for name in LINK_RESULTS if name not in _FOLLOWED}
    if told := ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in left_out.items() if count):
        print(f"crawlproject has left out links: {told}", flush=True)
    return Spent(cpu, memory, used)


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


def crawl(crawler: Crawler, folders: Mapping[str, Path], home: Path, *, tls: bool) -> Ran:
    """Have a crawler crawl the sites; return what it took for the HTML pages that they sent."""
    home.mkdir(parents=True)
    with Site(folders, home / "nginx", apart=True, tls=tls) as site:
        listed = home / "urls.txt"
        listed.write_text("".join(f"{url}/index.html\n" for url in site.urls.values()))
        began = time.monotonic()
        spent = crawler(listed, home, list(site.hosts.values()))
        seconds = time.monotonic() - began
        sent = [one for arrivals in site.arrivals().values() for one in arrivals]
    pages = sum(one.status == 200 and one.path.partition("?")[0].endswith(".html") for one in sent)
    return Ran({"crawler": spent.cpu}, spent.memory, pages, seconds, {"Redis": spent.redis})


def main() -> None:
    """Run the comparison."""
    parser = comparison("page_crawl", __doc__, rounds=1)
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--pages", type=int, help="how many the sites' indexes list at most (default: all)")
    chosen = parser.parse_args()
    manuals = corpus.pages(chosen.corpus)
    with tempfile.TemporaryDirectory(prefix="sites-") as temporary:
        folders = lay_out(manuals, Path(temporary) / "sites", chosen.pages)
        nothing = {name: Path(temporary) / "nothing" / name for name in folders}
        for empty in nothing.values():
            empty.mkdir(parents=True)
            (empty / "index.html").write_text("<title>nothing</title>")

        def run(name: str, home: Path, is_least: bool) -> Ran:
            return crawl(CRAWLERS[name], nothing if is_least else folders, home, tls=chosen.tls)

        compare(CRAWLERS, run, chosen.rounds, "pages")


if __name__ == "__main__":
    main()
