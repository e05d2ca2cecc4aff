"""What reading a page costs: against lxml and Scrapy's LinkExtractor on real HTML; and hostile pages.

    .venv/bin/python -m benchmarks.page_parsing --folder /usr/share/doc --pages 600

CPU time in one run: judge by the ratios. "In a process beside" is that of both processes, with the way of the page
there and of what it says back.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import lxml.html
from scrapy.http import HtmlResponse
from scrapy.linkextractors.lxmlhtml import LxmlLinkExtractor
from selectolax.lexbor import LexborHTMLParser

from crawlproject.pages.document import decoded
from crawlproject.pages.nesting import parsable
from crawlproject.pages.page import MAX_BYTES, read_page

URL = "https://docs.example/manual/page.html"
SIZES = (0, 8_000, 32_000, 100_000, MAX_BYTES + 1)  # bytes, the bounds of the rows
HEADERS = {"Content-Type": ["text/html"]}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def corpus(folders: list[Path], count: int) -> list[bytes]:
    """Return pages in folders, each once, the same ones in each run."""
    found = {path.resolve() for folder in folders for path in folder.rglob("*.html") if path.is_file()}
    chosen = random.Random(1).sample(sorted(found), min(count, len(found)))
    return [path.read_bytes()[:MAX_BYTES] for path in chosen]


def by_lxml(body: bytes) -> None:
    if body.strip():
        tree = lxml.html.document_fromstring(body)
        tree.make_links_absolute(URL, handle_failures="ignore")
        list(tree.iterlinks())


def by_scrapy(body: bytes) -> None:
    LxmlLinkExtractor().extract_links(HtmlResponse(URL, body=body, encoding="utf-8"))


def by_scrapy_canonical(body: bytes) -> None:
    LxmlLinkExtractor(canonicalize=True).extract_links(HtmlResponse(URL, body=body, encoding="utf-8"))


WAYS: dict[str, Callable[[bytes], object]] = {
    "all that a page says": lambda body: read_page(URL, HEADERS, body, NOW),
    "of that: how far to parse": lambda body: parsable(decoded(None, body)[0]),
    "of that: Lexbor": lambda body: LexborHTMLParser(decoded(None, body)[0]),
    "lxml, links made absolute": by_lxml,
    "LinkExtractor": by_scrapy,
    "LinkExtractor, canonical": by_scrapy_canonical,
}


def _read(pages: Connection) -> None:
    """Read pages until an empty one comes; answer with each one's `Page`, at the end with the CPU seconds."""
    start = time.process_time()
    while body := pages.recv_bytes():
        pages.send(read_page(URL, HEADERS, body, NOW))
    pages.send(time.process_time() - start)


def beside(pages: list[bytes]) -> float:
    """Return the CPU seconds of two processes, one of which reads the pages for the other."""
    context = get_context("spawn")
    ours, others = context.Pipe()
    reader = context.Process(target=_read, args=(others,))
    reader.start()
    ours.send_bytes(pages[0])  # so that it has started, and its first page is not counted here
    ours.recv()
    start = time.process_time()
    for body in pages[1:]:
        ours.send_bytes(body)
        ours.recv()
    spent = time.process_time() - start
    ours.send_bytes(b"")
    spent += float(ours.recv())
    reader.join()
    return spent


def measure(pages: list[bytes]) -> dict[str, float]:
    """Return the CPU milliseconds a page that each way takes, by turns on each page."""
    seconds = dict.fromkeys(WAYS, 0.0)
    for body in pages:
        for name, way in WAYS.items():
            start = time.process_time()
            way(body)
            seconds[name] += time.process_time() - start
    seconds["in a process beside"] = beside([body for body in pages if body])
    return {name: total / len(pages) * 1000 for name, total in seconds.items()}


def _is_cut(body: bytes) -> bool:
    page = read_page(URL, HEADERS, body, NOW)
    return page is not None and page.is_cut


def _filled(unit: str) -> str:
    return (unit * (MAX_BYTES // len(unit) + 1))[:MAX_BYTES]


def _numbered(unit: str) -> str:
    return "".join(unit.format(number) for number in range(MAX_BYTES // len(unit)))[:MAX_BYTES]


HOSTILE = {
    "lists in lists": _filled("<ul><li>"),
    "blocks in links": _filled("<a><div>"),
    "formatting, opened again": "<p>" + "".join(f"<b a{n}>" for n in range(300)) + "</p>" + "<p>x" * 3000,
    "options": "<select>" + _filled("<option>x"),
    "attributes": "<p " + _numbered("{} ") + ">",
    "links": _filled("<a>"),
    "paragraphs": _filled("<p>"),
    "addresses": _numbered("<a href='?b={}&a=%e4'>"),
    "images and licences": "<i typeof=x>" * 39 + _filled("<a rel=license href=/x></a><img src=x>"),
}


def _alone(way: str, body: bytes) -> tuple[float, int]:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    start = time.process_time()
    if way == "Lexbor":
        LexborHTMLParser(body)
    else:
        read_page(URL, HEADERS, body, NOW)
    return time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, action="append", required=True)
    options.add_argument("--pages", type=int, default=600)
    given = options.parse_args()
    pages = corpus(given.folder, given.pages)
    for low, high in pairwise(SIZES):
        of_size = [body for body in pages if low <= len(body) < high]
        if not of_size:
            continue
        figures = measure(of_size)
        mean = sum(map(len, of_size)) // len(of_size)
        print(f"\n{len(of_size)} pages of {low:,} to {high - 1:,} bytes, {mean:,} on average")
        for name, spent in figures.items():
            print(f"  {name:28} {spent:8.2f} ms  {spent / figures['all that a page says']:6.2f}")
        print(f"  cut, as they would cost the parser too much: {sum(map(_is_cut, of_size))}")
    print(f"\nhostile pages of {MAX_BYTES:,} bytes at most: Lexbor alone, and all that a page says")
    for name, text in HOSTILE.items():
        line = f"  {name:28}"
        for way in ("Lexbor", "page"):
            with get_context("spawn").Pool(1) as pool:
                spent, memory = pool.apply(_alone, (way, text.encode()))
            line += f"  {spent * 1000:8.0f} ms {memory:5} MB"
        print(line)


if __name__ == "__main__":
    main()
