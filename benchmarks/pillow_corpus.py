"""Crawls the pictures of Pillow's own test suite, bombs, crashers and fuzzers' finds among them.

    python -m benchmarks.pillow_corpus FOLDER [--formats JPEG,PNG,SVG]

FOLDER holds them: `Tests/images` of a checkout of python-pillow/Pillow. All files are seeds of one real worker,
whatever they are. Prints what they ended as, the reasons by number, and the most memory that worker and
decoders had together. Exit code 1 when the worker died or a seed has not exactly one outcome.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.ours import Crawl
from crawlproject.models import DEFAULT_FORMATS
from crawlproject.state.keys import Keys
from demo.gallery import Gallery

RATE = 200
MIB = 1 << 20


def resident(pid: int) -> int:
    """Return the bytes of memory that a process and those it has started have at present."""
    total = 0
    for path in [Path(f"/proc/{pid}"), *_children(pid)]:
        try:
            total += int((path / "statm").read_text().split()[1]) * 4096
        except (FileNotFoundError, ProcessLookupError):  # just gone
            continue
    return total


def _children(pid: int) -> list[Path]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [Path(f"/proc/{child}") for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def kind_of(reason: str) -> str:
    """Return a reason without what is the file's own in it."""
    return re.sub(r"\(after.*|begins with .*|\d+", "", reason)[:90].strip()


def main() -> None:
    """Serve, crawl, count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pillow_corpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", type=Path, help="leave logs, events and thumbnails in this new folder")
    parser.add_argument("--formats", default=",".join(DEFAULT_FORMATS), help="CRAWL_FORMATS of the worker")
    arguments = parser.parse_args()
    files = sorted(path for path in arguments.folder.rglob("*") if path.is_file())
    if not files:
        sys.exit(f"There are no files in {arguments.folder}.")
    with tempfile.TemporaryDirectory() as scratch:
        home = arguments.keep or Path(scratch) / "crawl"
        sites = Path(scratch) / "sites"
        (sites / "pillow").mkdir(parents=True)
        for number, path in enumerate(files):
            shutil.copy(path, sites / "pillow" / f"{number}{path.suffix}")
        settings = {"CRAWL_CIRCUIT_ERRORS": 1, "LOG_LEVEL": "INFO", "CRAWL_FORMATS": arguments.formats}
        with (
            Gallery(sites, Path(scratch) / "arrivals.jsonl") as gallery,
            Crawl(home, {"pillow": 500_000_000}, settings) as crawl,
        ):
            keys = Keys("crawl", "images")
            for number, path in enumerate(files):
                url = f"{gallery.urls['pillow']}/{number}{path.suffix}"
                seed = f'{{"url": "{url}", "uuid": "{number}", "source": "pillow"}}'
                crawl.redis.lpush(keys.seeds, seed)
            began, peak = time.monotonic(), 0
            worker = crawl.worker(0)
            while worker.poll() is None:
                peak = max(peak, resident(worker.pid))
                time.sleep(0.02)
            seconds = time.monotonic() - began
            events, dead = crawl.events(), crawl.dead_letters()
    outcomes = Counter([event["identifier"] for event in events] + [letter["identifier"] for letter in dead])
    print(
        f"{len(files)} files, worker's exit code {worker.returncode}, {seconds:.0f} s, peak {peak / MIB:.0f} MiB"
    )
    kinds = Counter(event.get("format", "link rot") for event in events)
    print("events:", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    for kind, count in Counter(kind_of(letter["reason"]) for letter in dead).most_common():
        print(f"{count:6} {kind}")
    wrong = [str(path) for number, path in enumerate(files) if outcomes[str(number)] != 1]
    print(f"seeds without exactly one outcome: {len(wrong)}", *wrong[:10])
    if worker.returncode or wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
