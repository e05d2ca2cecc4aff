"""Pages a second of a core: crawlproject's `pages` against bare Scrapy and against a plain asyncio fetcher.

    python -m benchmarks.page_crawl [--rounds N] [--tls] [--pages N] [--no-budget] [--corpus DIR]

All crawl the same manuals (HTML out of Debian packages) from the same nginx, on four addresses, link by link, in
one run. Bare Scrapy has its LinkExtractor and its frontier in memory, the plain fetcher a set; neither reads
robots.txt, retries, paces or stores anything. crawlproject has Redis, robots.txt, send slots, leases and the WARC
store; only the delay between a domain's pages is off, and with --no-budget the budget of links that only it has.
Prints, as median of the rounds, HTML pages per second of the crawler's CPU time (start and end left out), for
crawlproject the CPU time of Redis for each page, and of each of its crawls the links that were left out, by rule.
Needs nginx and benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

from benchmarks import corpus
from benchmarks.measure import Run, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.roundtrips import Usage
from benchmarks.site import Site
from crawlproject.status.source_status import LINK_RESULTS

SITES = 4
LINKS = 400  # on each page of a site's index: all of them within the bytes that are read of a page
OURS = "crawlproject"
FOLLOWED = ("admitted", "known")  # of what becomes of links
_PLAIN = Path(__file__).with_name("plain_pages")
_PAGES_CLAIMED = 500_000_000  # by each site: 200 requests a second, so that the worker's own speed is the limit


class Crawler(Protocol):
    """Prepares a crawl that begins at `urls`; what it writes goes into the empty folder `home`."""

    def __call__(self, urls: Sequence[str], home: Path) -> AbstractContextManager[Run]: ...


class Measured(NamedTuple):
    """What a crawl took: HTML pages sent by the sites, CPU seconds of the crawler, seconds, others' figures."""

    pages: int
    cpu: float
    seconds: float
    memory: int
    extra: Mapping[str, float]


def bare_scrapy(urls: Sequence[str], home: Path) -> AbstractContextManager[Run]:
    """Run the spider in plain_pages/."""
    return _plain(
        urls, home, [*SCRAPY, "runspider", str(_PLAIN / "links.py"), "-a"], "urls=", "--logfile", "log.txt"
    )


def plain_fetcher(urls: Sequence[str], home: Path) -> AbstractContextManager[Run]:
    """Run the fetcher in plain_pages/."""
    return _plain(urls, home, [sys.executable, str(_PLAIN / "fetch.py")])


@contextmanager
def _plain(urls: Sequence[str], home: Path, command: list[str], name: str = "", *more: str) -> Iterator[Run]:
    listed = home / "urls.txt"
    listed.write_text("".join(f"{url}\n" for url in urls))
    yield Run([*command, f"{name}{listed}", *more], home, dict(os.environ), [])


@contextmanager
def ours(urls: Sequence[str], home: Path, *, budget: bool = True) -> Iterator[Run]:
    """Run a worker of crawlproject with a Redis of its own and the WARC store."""
    listed = home / "urls.txt"
    listed.write_text("".join(f"{url}\n" for url in urls))
    hosts = {url.split("/")[2].rpartition(":")[0]: _PAGES_CLAIMED for url in urls}
    settings: dict[str, object] = {
        "CRAWL_PAGES_DELAY": 0,
        "CRAWL_PAGES_STORE": home / "warc",
        "CRAWL_PAGES_IMAGES": "none",
        "CRAWL_TLS_FAILURES": "record",
    }
    if not budget:
        settings["CRAWL_PAGES_BUDGET_MAX"] = 0
    with Crawl(home / "crawl", hosts, settings) as crawl:
        crawl.scrapy("feed", "--spider", "pages", str(listed))
        command = [*SCRAPY, "crawl", "pages", "--logfile", str(home / "worker.log")]
        run = Run(command, ROOT, crawl.environment, [])
        before = Usage.of(crawl.redis)
        yield run
        used = Usage.of(crawl.redis).since(before)
        run.extra["CPU us of Redis"] = used.cpu * 1e6
        run.extra["round trips"] = used.exchanges
        totals = crawl.totals("pages")
        left_out = {name: totals[f"links_{name}"] for name in LINK_RESULTS if name not in FOLLOWED}
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in left_out.items() if count)
        if told:
            print(f"{OURS} has left out links: {told}", flush=True)


CRAWLERS: dict[str, Crawler] = {"bare Scrapy": bare_scrapy, "asyncio + lxml": plain_fetcher, OURS: ours}


def lay_out(manuals: Mapping[str, Sequence[Path]], folder: Path, most: int | None) -> dict[str, Path]:
    """Make SITES folders of the manuals, each with an index that leads to all of its pages; return them by name.

    A manual is where it was in its package, so that the links in it lead on.
    """
    folders = {f"site{number}": folder / str(number) for number in range(SITES)}
    sizes = dict.fromkeys(folders, 0)
    listed: dict[str, list[str]] = {name: [] for name in folders}
    for package, paths in sorted(manuals.items(), key=lambda manual: -len(manual[1])):
        site = min(sizes, key=sizes.__getitem__)
        sizes[site] += len(paths)
        root = next(parent for parent in paths[0].parents if parent.name == package)
        folders[site].mkdir(parents=True, exist_ok=True)
        (folders[site] / package).symlink_to(root.resolve())
        listed[site] += [f"/{package}/{path.relative_to(root)}" for path in paths]
    for site, names in listed.items():
        chosen = islice(names, most and most // SITES)
        for number, some in enumerate(_batches(list(chosen))):
            links = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in some)
            onward = f'<a href="/index{number + 1}.html">more</a>' if len(some) == LINKS else ""
            page = f"<!DOCTYPE html><title>{site} {number}</title><ul>{links}</ul>{onward}"
            (folders[site] / f"index{number or ''}.html").write_text(page)
    return folders


def _batches(names: list[str]) -> Iterator[list[str]]:
    yield from (names[first : first + LINKS] for first in range(0, len(names), LINKS))


def measure(crawler: Crawler, folders: Mapping[str, Path], home: Path, *, tls: bool) -> Measured:
    """Run a crawler on the sites; return what it took."""
    home.mkdir(parents=True)
    with Site(folders, home / "nginx", apart=True, tls=tls) as site:
        with crawler([f"{url}/index.html" for url in site.urls.values()], home) as run:
            began = time.monotonic()
            cpu, memory = run_to_end(run, home / "output.txt")
            seconds = time.monotonic() - began
        sent = [one for arrivals in site.arrivals().values() for one in arrivals]
    pages = sum(one.status == 200 and one.path.partition("?")[0].endswith(".html") for one in sent)
    return Measured(pages, cpu, seconds, memory, run.extra)


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page_crawl", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=1, help="of each, in turn")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--pages", type=int, help="how many the sites' indexes list at most (default: all)")
    parser.add_argument("--no-budget", action="store_true", help="crawlproject's links have no budget")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the manuals")
    options = parser.parse_args()
    manuals = corpus.pages(options.corpus)
    crawlers = CRAWLERS | {OURS: partial(ours, budget=not options.no_budget)}
    runs: dict[str, list[tuple[Measured, Measured]]] = {name: [] for name in CRAWLERS}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        folders = lay_out(manuals, Path(temporary) / "sites", options.pages)
        nothing: dict[str, Path] = {}
        for name in folders:
            empty = Path(temporary) / "nothing" / name
            empty.mkdir(parents=True)
            (empty / "index.html").write_text("<title>nothing</title>")
            nothing[name] = empty
        for number in range(options.rounds):
            for name, crawler in crawlers.items():
                home = Path(temporary) / f"{number}-{name.replace(' ', '-')}"
                fixed = measure(crawler, nothing, home / "fixed", tls=options.tls)
                one = measure(crawler, folders, home / "all", tls=options.tls)
                runs[name].append((fixed, one))
                print(
                    f"round {number + 1}, {name}: {one.pages} pages, {one.cpu:.1f} CPU s, {one.seconds:.1f} s",
                    flush=True,
                )
        report(runs)
    return 0


def report(runs: Mapping[str, Sequence[tuple[Measured, Measured]]]) -> None:
    """Print the medians."""
    print(f"{'':22}{'pages':>7}{'pages/s a core':>16}{'pages/s':>9}{'peak MB':>9}")
    for name, some in runs.items():
        a_core = median(one.pages / (one.cpu - fixed.cpu) for fixed, one in some)
        speed, memory = (
            median(one.pages / one.seconds for _, one in some),
            median(one.memory for _, one in some) / 1e6,
        )
        print(f"{name:22}{some[-1][1].pages:7}{a_core:16.1f}{speed:9.1f}{memory:9.0f}")
        for figure in some[0][1].extra:
            each = median((one.extra[figure] - fixed.extra[figure]) / one.pages for fixed, one in some)
            print(f"{name}: {figure} a page: {each:.2f}")


if __name__ == "__main__":
    sys.exit(main())
