"""How much the beginnings of pictures tell, and whether that is what the whole pictures say.

    python -m benchmarks.probes [FOLDER ...] [--bytes 32768 | --wire] [--most N]

Without folders it takes the pictures of Debian packages (benchmarks/corpus.py). Each picture that can be decoded
is read once as a whole, as in a crawl, and once by its beginning, as in a probe. Prints by format how many told
size, quality and EXIF, and at which share of the bytes. A picture whose size stays unknown would have to be
fetched: the last column but one counts that, too. Exit code 1 if a beginning says anything else than the whole.

With --wire a worker probes them at sites of nginx, of which one sends parts, one ignores `Range`, and one answers
416 to it: prints what each has sent, heads included, as it says itself. Exit code 1 if a probe is missing.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import corpus
from benchmarks.ours import Crawl
from benchmarks.site import Site, link
from crawlproject.imaging.analyse import analyse
from crawlproject.imaging.beginning import read_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import DEFAULT_FORMATS, ImageFacts, ProbedFacts

PIXELS = 200_000_000
ENDINGS = (*corpus.KINDS, ".avif")
SITES = {"parts": "", "ignores": "max_ranges 0;", "refuses": "if ($http_range) { return 416; }"}
CLAIMED = 500_000_000  # pictures, by each site: 200 requests a second


class Tally:
    """What the beginnings of some pictures tell."""

    def __init__(self) -> None:
        self.pictures = self.sizes = self.qualities = self.exif = 0
        self.bytes = self.probed = self.fetched = 0
        self.seconds = 0.0

    def add(self, facts: ImageFacts, found: ProbedFacts, probed: int, seconds: float) -> None:
        """Count a picture."""
        self.pictures += 1
        self.sizes += found.width is not None
        self.qualities += found.compression_quality == facts.compression_quality
        self.exif += found.exif is not None
        self.bytes += facts.filesize
        self.probed += probed
        self.fetched += facts.filesize if found.width is None else 0
        self.seconds += seconds

    def line(self, name: str) -> str:
        """Return a row of the table."""
        shares = (self.sizes, self.qualities, self.exif)
        percent = " | ".join(f"{100 * share / self.pictures:.1f} %" for share in shares)
        cost = f"{100 * self.probed / self.bytes:.1f} % | {100 * (self.probed + self.fetched) / self.bytes:.1f} %"
        took = 1e6 * self.seconds / self.pictures
        return f"| {name} | {self.pictures:,} | {self.bytes / 1e6:,.0f} | {percent} | {cost} | {took:.0f} |"


def differences(facts: ImageFacts, found: ProbedFacts) -> list[str]:
    """Return what is known from the beginning and is otherwise in the whole."""
    whole = {
        "format": facts.format, "width": facts.width, "height": facts.height,
        "compression_quality": facts.compression_quality, "exif": facts.exif or {}, "sha256": facts.sha256,
    }  # fmt: skip
    return [name for name, value in whole.items() if getattr(found, name) not in (None, value)]


def wire(pictures: Sequence[Path]) -> int:
    """Probe the pictures at each site; print what that took, and return how many have no event."""
    with TemporaryDirectory(prefix="crawl-") as temporary:
        home = Path(temporary)
        names = {site: link(pictures, home / site) for site in SITES}
        folders, whole = {site: home / site for site in SITES}, sum(path.stat().st_size for path in pictures)
        with (
            Site(folders, home / "nginx", directives=SITES) as sites,
            Crawl(home / "crawl", dict.fromkeys(SITES, CLAIMED), {}) as crawl,
        ):
            seeds = [f"{sites.urls[site]}/{name}\t{site}\n" for site in SITES for name in names[site]]
            (home / "seeds.tsv").write_text("url\tsource\n" + "".join(seeds))
            crawl.scrapy("feed", "--probe", str(home / "seeds.tsv"))
            if ended := crawl.worker(0).wait():
                sys.exit(f"The worker ended with {ended}.")
            events = [event for event in crawl.events() if event["event"] == "image_probes"]
            arrivals = sites.arrivals()
    print("| site | pictures | MB | requests | statuses | size | MB sent | of all bytes |\n" + "|---" * 8 + "|")
    for site in SITES:
        sent = [one for one in arrivals[site] if one.path != "/robots.txt"]
        sizes = sum(event["width"] is not None for event in events if event["source"] == site)
        statuses = ", ".join(f"{status}: {n:,}" for status, n in sorted(Counter(a.status for a in sent).items()))
        total = sum(one.sent for one in sent)
        print(
            f"| {site} | {len(pictures):,} | {whole / 1e6:,.1f} | {len(sent):,} | {statuses} "
            f"| {100 * sizes / len(pictures):.1f} % | {total / 1e6:,.1f} | {100 * total / whole:.1f} % |"
        )
    missing = len(SITES) * len(pictures) - len(events)
    print(f"\n{missing} probes have no event")
    return missing


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probes", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="of pictures; default: those of benchmarks.corpus")
    parser.add_argument("--bytes", type=int, default=32_768, help="of a beginning")
    parser.add_argument("--wire", action="store_true", help="probe them at web sites")
    parser.add_argument("--most", type=int, help="so many of them, chosen at random (default: all)")
    arguments = parser.parse_args()
    most: int = arguments.bytes
    pictures = _pictures(arguments.folders)
    if arguments.most:
        pictures = random.Random(0).sample(pictures, min(arguments.most, len(pictures)))
    if arguments.wire:
        sys.exit(wire(pictures) > 0)
    tallies: dict[str, Tally] = defaultdict(Tally)
    wrong = unreadable = 0
    for path in pictures:
        body = path.read_bytes()
        try:
            facts = analyse(body, max_pixels=PIXELS, sizes=(16,)).facts
        except UnreadableImage:
            unreadable += 1
            continue
        beginning, whole = body[:most], len(body) <= most
        began = time.process_time()
        found = read_beginning(beginning, whole=whole, max_pixels=PIXELS, formats=DEFAULT_FORMATS)
        took = time.process_time() - began
        for name in ("all", facts.format):
            tallies[name].add(facts, found, len(beginning), took)
        if others := differences(facts, found):
            wrong += 1
            print(f"{path}: {', '.join(others)}: {found} of {facts}"[:1_000], file=sys.stderr)
    if not tallies:
        sys.exit("There are no pictures that can be read.")
    print(
        "| | pictures | MB | size | quality | EXIF | bytes | with fetches where no size | us |\n"
        + "|---" * 9
        + "|"
    )
    for name, tally in sorted(tallies.items(), key=lambda item: -item[1].pictures):
        print(tally.line(name))
    print(f"\n{unreadable} others cannot be read as a whole; {wrong} beginnings say something else than the whole")
    sys.exit(wrong > 0)


def _pictures(folders: Iterable[Path]) -> list[Path]:
    folders = list(folders)
    if not folders:
        return corpus.pictures()
    paths = (path for folder in folders for path in sorted(folder.rglob("*")))
    return [path for path in paths if path.suffix.lower() in ENDINGS and path.is_file()]


if __name__ == "__main__":
    main()
