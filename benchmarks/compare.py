"""crawlproject against Scrapy's stock ImagesPipeline: the same pictures from the same server, in one run.

    python -m benchmarks.compare [--rounds N] [--images N] [--kinds jpeg,webp] [--longer-than 640] [--also PATH]

Each makes thumbnails of at most 640 pixels as JPEG of quality 85. Prints for each, as median of the rounds: CPU
seconds per 1,000 thumbnails, the same without start and end, thumbnails a second, peak memory (measure.py says
how), and how close its thumbnails are to a full decode with Lanczos (thumbnails.py). With more `--images` than
there are pictures, each is served under several URLs. `--also` adds another checkout of crawlproject, such as a
git worktree of an older commit. Exit code 1 when a target is missed. Needs nginx and benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median

from benchmarks import corpus, thumbnails
from benchmarks.measure import Crawler, Measured, Run, Seed, measure, start_and_end
from benchmarks.ours import ROOT, Crawl
from benchmarks.roundtrips import Usage
from crawlproject.storage.blobs import thumbnail_name

OURS, STOCK = "crawlproject", "stock"
MOST_CPU = 0.35  # of the stock pipeline's
MOST_ROUND_TRIPS = 0.3  # an image
THUMBNAIL = 640  # pixels

_STOCK_PROJECT = Path(__file__).with_name("stock")
_IMAGES_CLAIMED = 500_000_000  # by each source: 200 requests a second, so that the worker's own speed is the limit


@contextmanager
def stock(seeds: Sequence[Seed], home: Path, *, full: bool) -> Iterator[Run]:
    """Run the Scrapy project in `stock/`; without `full` its code is changed to store the thumbnails only."""
    urls, images = home / "urls.txt", home / "images"
    urls.write_text("".join(f"{seed.url}\n" for seed in seeds))
    files = ["-a", f"urls={urls}", "-o", str(home / "items.jsonl"), "--logfile", str(home / "scrapy.log")]
    settings = {"IMAGES_STORE": str(images), "STOCK_FULL": "1" if full else "0"}
    sha1s = (hashlib.sha1(seed.url.encode(), usedforsecurity=False).hexdigest() for seed in seeds)
    yield Run(
        [sys.executable, "-m", "scrapy", "crawl", "pictures", *files],
        _STOCK_PROJECT,
        {**os.environ, **settings},
        [images / "thumbs" / "big" / f"{sha1}.jpg" for sha1 in sha1s],
    )


@contextmanager
def ours(seeds: Sequence[Seed], home: Path, *, checkout: Path, claimed: int = _IMAGES_CLAIMED) -> Iterator[Run]:
    """Run a worker of crawlproject with a Redis of its own; the seeds are in the list before it starts.

    `claimed` is the number of images of each source, by which it has its rate.

    Redis serves all workers of a crawl, so its CPU time is not the worker's: it is printed apart.
    """
    listed = home / "seeds.tsv"
    lines = (f"{seed.identifier}\t{seed.url}\t{seed.source}\n" for seed in seeds)
    listed.write_text("identifier\turl\tsource\n" + "".join(lines))
    sizes = dict.fromkeys((seed.source for seed in seeds), claimed)
    with Crawl(home / "crawl", sizes, {}, checkout) as crawl:
        crawl.scrapy("feed", str(listed))
        files = [crawl.thumbnails / thumbnail_name(seed.identifier) for seed in seeds]
        run = Run(crawl.worker_command(1), checkout, crawl.environment, files)
        before = Usage.of(crawl.redis, checkout)
        yield run
        used = Usage.of(crawl.redis, checkout).since(before)
        run.extra["round trips an image, at least"] = used.commands / len(seeds)
        run.extra["round trips an image, at most"] = used.exchanges / len(seeds)
        run.extra["CPU s of Redis per 1,000 images"] = used.cpu / len(seeds) * 1000


def main() -> int:
    """Run the comparison; return 1 when a target is missed."""
    options = _options()
    kinds = set(options.kinds.split(",")) if options.kinds else set(corpus.KINDS.values())
    pictures = [
        path
        for path in corpus.pictures(options.corpus)
        if corpus.kind_of(path) in kinds and thumbnails.longest_side(path) > options.longer_than
    ]
    images = list(islice(cycle(pictures), options.images or len(pictures)))
    size = sum(path.stat().st_size for path in images)
    print(f"{len(images)} images from {len(pictures)} pictures, {size / len(images) / 1024:.0f} KiB on average")
    for picture in pictures:
        picture.read_bytes()  # from the disk now, not during the first run
    crawlers: dict[str, Crawler] = {
        STOCK: partial(stock, full=True),
        "stock, thumbnails only": partial(stock, full=False),
        **{f"{OURS} in {path}": partial(ours, checkout=path.resolve()) for path in options.also},
        OURS: partial(ours, checkout=ROOT),
    }
    runs: dict[str, list[Measured]] = {name: [] for name in crawlers}
    made: dict[str, dict[Path, Path]] = {}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        for number, (place, (name, crawler)) in product(range(1, options.rounds + 1), enumerate(crawlers.items())):
            home = Path(temporary) / f"{number}-{place}"
            fixed = start_and_end(crawler, pictures, home / "fixed")
            one, made[name] = measure(crawler, images, home / "all", fixed)
            runs[name].append(one)
            print(
                f"round {number}, {name}: {one.cpu_per_thousand:.2f} CPU s, {one.speed:.1f}/s; "
                f"other programs had {one.others:.0%} of the machine",
                flush=True,
            )
        report(runs)
        compare_thumbnails(made, options.sample)
    return verdict(runs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1, help="of each, in turn")
    parser.add_argument("--images", type=int, help="how many to fetch (default: each picture once)")
    parser.add_argument("--kinds", help="only these, such as jpeg,webp (default: all)")
    parser.add_argument(
        "--longer-than", type=int, default=0, metavar="PIXELS", help="only pictures with a longer side"
    )
    parser.add_argument(
        "--also", type=Path, action="append", default=[], metavar="PATH", help="another checkout of crawlproject"
    )
    parser.add_argument("--sample", type=int, default=400, help="pictures whose thumbnails are looked at")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the pictures")
    return parser.parse_args()


def report(runs: Mapping[str, Sequence[Measured]]) -> None:
    """Print the medians."""
    print(f"\n{os.cpu_count()} cores, median of {len(runs[OURS])} rounds")
    print(f"{'':30}{'thumbnails':>11}{'CPU s/1,000':>13}{'without start':>15}{'images/s':>10}{'peak MB':>9}")
    for name, some in runs.items():
        cpu, marginal = median(run.cpu_per_thousand for run in some), median(run.marginal for run in some)
        speed, memory = median(run.speed for run in some), median(run.memory for run in some) / 1e6
        print(f"{name:30}{some[-1].images:11}{cpu:13.2f}{marginal:15.2f}{speed:10.1f}{memory:9.0f}")
    for name, some in runs.items():
        for figure in some[0].extra:
            print(f"{name}, {figure}: {median(run.extra[figure] for run in some):.3f}")


def compare_thumbnails(made: Mapping[str, Mapping[Path, Path]], sample: int) -> None:
    """Print how good the thumbnails of up to `sample` pictures are that all have made one of."""
    common = sorted(set.intersection(*(set(one) for one in made.values())))
    random.Random(0).shuffle(common)
    looked_at = list(islice(filter(thumbnails.comparable, common), sample))
    smaller = [path for path in looked_at if thumbnails.longest_side(path) > THUMBNAIL]
    for title, some in ("made smaller", smaller), ("all", looked_at):
        print(f"\nthumbnails of {len(some)} pictures ({title}), median / 5th percentile")
        for name, files in made.items():
            found = [thumbnails.quality(files[path], path) for path in some]
            psnr, ssim = sorted(one.psnr for one in found), sorted(one.ssim for one in found)
            low = len(found) // 20
            print(
                f"  {name:30}PSNR {median(psnr):.2f} / {psnr[low]:.2f} dB, "
                f"SSIM {median(ssim):.4f} / {ssim[low]:.4f}"
            )


def verdict(runs: Mapping[str, Sequence[Measured]]) -> int:
    """Print the ratios, and return whether a target is missed."""
    print()
    missed = 0
    here = runs[OURS]
    for name, others in runs.items():
        if name == OURS:
            continue
        pairs = list(zip(here, others, strict=True))
        cpu = median(one.cpu_per_thousand / other.cpu_per_thousand for one, other in pairs)
        marginal = median(one.marginal / other.marginal for one, other in pairs)
        speed = median(one.speed / other.speed for one, other in pairs)
        target = f" (target: at most {MOST_CPU})" if name == STOCK else ""
        missed += name == STOCK and cpu > MOST_CPU
        print(f"{OURS} / {name}: CPU {cpu:.3f}{target}, without start {marginal:.3f}, images/s {speed:.2f}")
    trips = median(run.extra["round trips an image, at most"] for run in here)
    missed += trips > MOST_ROUND_TRIPS
    print(f"round trips to Redis an image: at most {trips:.3f} (target: at most {MOST_ROUND_TRIPS})")
    print(f"targets missed: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
