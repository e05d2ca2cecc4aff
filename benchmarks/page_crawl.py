"""Pages a second of a core: crawlproject's `pages` against bare Scrapy, and other crawlers.

    python -m benchmarks.page_crawl [--rounds N] [--tls] [--pages N] [--peers]

All crawl the same manuals (HTML out of Debian packages) from the same nginx, on four addresses, link by link, in
one run. Bare Scrapy (plain_spider.py) has its LinkExtractor and its frontier in memory, and neither reads
robots.txt nor paces nor stores anything. crawlproject has Redis, robots.txt, send slots, leases and the WARC
store; only the delay between a domain's pages and the budget for its links are off. With `--peers` crawlee and
spider (Rust) crawl as bare Scrapy does; npm installs them (peers/). A crawl that leaves out a page that the sites'
indexes list is void, and ends the comparison. Prints what measure.py says, where Redis is beside. Needs nginx, and
for the peers Node.js.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.measure import FAST, Ran, compare, comparison, redis_cpu, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.site import Site

SITES = 4
LINKS = 400  # on each page of a site's index: all of them within the bytes that are read of a page
_PEERS = Path(__file__).with_name("peers")


class Spent(NamedTuple):
    """CPU seconds of a crawler, its peak memory (bytes), and CPU seconds of Redis."""

    cpu: float
    memory: int
    redis: float = 0.0


# The site of a page, and its path.
Page = tuple[str, str]
# Crawls hosts from the URLs in a folder's urls.txt to the end; what it writes goes into the folder.
Crawler = Callable[[Path, Sequence[str]], Spent]


def in_memory(home: Path, hosts: Sequence[str], *, command: Sequence[str | Path]) -> Spent:
    """Run a crawler that is one command."""
    return Spent(*run_to_end(command, home, os.environ, home / "output.txt"))


def ours(home: Path, hosts: Sequence[str]) -> Spent:
    """Run a worker of crawlproject with a Redis of its own and the WARC store."""
    settings: dict[str, object] = {
        "CRAWL_PAGES_DELAY": 0,
        "CRAWL_PAGES_BUDGET_MAX": 0,  # the indexes have more links than it lets through at a time
        "CRAWL_PAGES_STORE": home / "warc",
        "CRAWL_PAGES_IMAGES": "none",
        "CRAWL_TLS_FAILURES": "record",
    }
    with Crawl(home / "crawl", dict.fromkeys(hosts, FAST), settings) as crawl:
        crawl.scrapy("feed", "--spider", "pages", str(home / "urls.txt"))
        command = [*SCRAPY, "crawl", "pages", "--logfile", str(home / "worker.log")]
        before = redis_cpu(crawl.redis.info())
        cpu, memory = run_to_end(command, ROOT, crawl.environment, home / "output.txt")
        used = redis_cpu(crawl.redis.info()) - before
    return Spent(cpu, memory, used)


_PLAIN = [*SCRAPY, "runspider", str(Path(__file__).with_name("plain_spider.py")), "-a", "urls=urls.txt"]
CRAWLERS: dict[str, Crawler] = {"bare Scrapy": partial(in_memory, command=_PLAIN), "crawlproject": ours}


def peers(*, tls: bool) -> dict[str, Crawler]:
    """Return the peers that can run here, installed if need be; print a sentence about those that cannot."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("crawlee and spider are left out: they need Node.js (apt-get install nodejs npm).")
        return {}
    folder = Path(shutil.copytree(_PEERS, corpus.FOLDER.resolve() / "peers", dirs_exist_ok=True))
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]  # what the lock file names
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"crawlee and spider are left out, as npm could not install them: {done.stderr.strip()}")
        return {}
    names = ["crawlee", "spider"]
    if tls or not any((folder / "node_modules" / "@spider-rs").glob("*/*.node")):
        print(
            "spider is left out: npm has it for Linux with glibc on x86-64 alone, and it refuses our certificate."
        )
        names.remove("spider")
    return {name: partial(in_memory, command=["node", folder / f"{name}.js", "urls.txt"]) for name in names}


def lay_out(
    manuals: Mapping[str, Sequence[Path]], folder: Path, most: int | None
) -> tuple[dict[str, Path], set[Page]]:
    """Make SITES folders of the manuals, each with an index that leads to all of its pages, or to none.

    Returns the folders by name, and what the indexes list. A manual is where it was in its package, so that the
    links in it lead on.
    """
    folders = {f"site{number}": folder / str(number) for number in range(SITES)}
    for empty in folders.values():
        empty.mkdir(parents=True)
    listed: dict[str, list[str]] = {name: [] for name in folders}
    for package, paths in sorted(manuals.items(), key=lambda manual: -len(manual[1])):
        site = min(folders, key=lambda name: len(listed[name]))
        root = next(parent for parent in paths[0].parents if parent.name == package)
        (folders[site] / package).symlink_to(root.resolve())
        listed[site] += [f"/{package}/{path.relative_to(root)}" for path in paths]
    listed = {site: names[: most and most // SITES] for site, names in listed.items()}
    for site, names in listed.items():
        for number, first in enumerate(range(0, len(names) or 1, LINKS)):
            some = names[first : first + LINKS]
            links = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in some)
            onward = f'<a href="/index{number + 1}.html">more</a>' if len(some) == LINKS else ""
            page = f"<!DOCTYPE html><title>{site} {number}</title><ul>{links}</ul>{onward}"
            (folders[site] / f"index{number or ''}.html").write_text(page)
    return folders, {(site, name) for site, names in listed.items() for name in names}


def crawl(crawler: Crawler, folders: Mapping[str, Path], listed: Set[Page], home: Path, *, tls: bool) -> Ran:
    """Have a crawler crawl the sites; return what it took for the HTML pages that they sent.

    Raises:
        SystemExit: it has left out pages that the sites' indexes list: its figures are void.

    """
    home.mkdir(parents=True)
    with Site(folders, home / "nginx", apart=True, tls=tls) as site:
        (home / "urls.txt").write_text("".join(f"{url}/index.html\n" for url in site.urls.values()))
        began = time.monotonic()
        spent = crawler(home, list(site.hosts.values()))
        seconds = time.monotonic() - began
        arrivals = [(name, one) for name, some in site.arrivals().items() for one in some if one.status == 200]
    pages = {(name, one.path) for name, one in arrivals if one.path.partition("?")[0].endswith(".html")}
    if left_out := listed - pages:
        sys.exit(f"{len(left_out):,} of {len(listed):,} pages were left out, such as {' '.join(min(left_out))}")
    return Ran({"crawler": spent.cpu}, spent.memory, len(pages), seconds, {"Redis": spent.redis})


def main() -> None:
    """Run the comparison."""
    parser = comparison("page_crawl", __doc__, rounds=1)
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--peers", action="store_true", help="also crawlee and spider, which npm installs")
    parser.add_argument("--pages", type=int, help="how many the sites' indexes list at most (default: all)")
    chosen = parser.parse_args()
    manuals = corpus.pages()
    with tempfile.TemporaryDirectory(prefix="sites-") as temporary:
        home = Path(temporary)
        least, all_of_it = lay_out({}, home / "least", None), lay_out(manuals, home / "all", chosen.pages)
        crawlers = (peers(tls=chosen.tls) if chosen.peers else {}) | CRAWLERS

        def run(name: str, home: Path, is_least: bool) -> Ran:
            return crawl(crawlers[name], *(least if is_least else all_of_it), home, tls=chosen.tls)

        compare(crawlers, run, chosen.rounds, "pages")


if __name__ == "__main__":
    main()
