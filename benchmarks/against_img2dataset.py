"""crawlproject against img2dataset: the same pictures from the same server into WebDataset's shards, in one run.

    make img2dataset
    python -m benchmarks.against_img2dataset [--rounds N] [--images N] [--corpus all|jpeg|web]

Both read URLs and captions from one Parquet file, make pictures of at most 640 pixels, never enlarged, as JPEG of
quality 85, with EXIF and SHA-256, and end with tar and Parquet files. img2dataset has two processes, as the
machine has two cores; crawlproject has one worker with its two decoders, `scrapy feed` before it, `scrapy events
--follow` beside it, and Redis, all of which count. Prints what measure.py says. Needs nginx.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.measure import FAST, Ran, compare, comparison, redis_cpu, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.site import Site, link

_SOURCES = 4
_THUMBNAIL = 640  # pixels
_PYTHON = ROOT / ".crawl" / "benchmarks" / "img2dataset" / "bin" / "python"  # made by `make img2dataset`
_PROCESSES = 2
_THREADS = 32  # of each of img2dataset's processes: its default, 256, is slower here


class Seed(NamedTuple):
    """A picture to fetch, and the file that is served for it."""

    identifier: str
    url: str
    source: str
    picture: Path


class Made(NamedTuple):
    """What a crawler took: CPU seconds by process, peak memory, samples, and when its last file was there."""

    cpu: dict[str, float]
    memory: int
    samples: int
    last: float  # Unix time


# Crawls the seeds; what it writes goes into the folder.
Crawler = Callable[[Sequence[Seed], Path], Made]


def ours(seeds: Sequence[Seed], home: Path) -> Made:
    """Feed, crawl, and write the shards meanwhile.

    It ends with the last picture, and the time that the reader takes to close its files: the worker waits for more
    for a second before it ends.
    """
    table, out = _seeds_in_parquet(seeds, home), home / "shards"
    with Crawl(home / "crawl", dict.fromkeys((seed.source for seed in seeds), FAST), {}) as crawl:
        before = redis_cpu(crawl.redis.info())
        feed = [*SCRAPY, "feed", str(table), "--columns", "uuid=identifier", "--keep", "TEXT"]
        read = [*SCRAPY, "events", f"{out}:webdataset", "--caption", "TEXT", "--follow"]
        ran = {"feed": run_to_end(feed, ROOT, crawl.environment, home / "feed.txt")}
        reader = subprocess.Popen(read, cwd=ROOT, env=crawl.environment)
        try:
            ran["worker"] = run_to_end(crawl.worker_command(1), ROOT, crawl.environment, home / "worker.txt")
        finally:
            began = time.monotonic()
            reader.terminate()
            _, status, usage = os.wait4(reader.pid, 0)
            reader.returncode = os.waitstatus_to_exitcode(status)
        if reader.returncode:
            sys.exit(f"{' '.join(read)} ended with {reader.returncode}")
        ran["events"] = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        cpu = {name: seconds for name, (seconds, _) in ran.items()}
        cpu["Redis"] = redis_cpu(crawl.redis.info()) - before
        last = max(path.stat().st_mtime for path in crawl.thumbnails.rglob("*.jpg"))
        took = time.monotonic() - began
    return Made(cpu, max(peak for _, peak in ran.values()), _samples_in(out), last + took)


def theirs(seeds: Sequence[Seed], home: Path) -> Made:
    """Run img2dataset."""
    table, out = _seeds_in_parquet(seeds, home), home / "shards"
    settings = {
        "url_list": table, "input_format": "parquet", "url_col": "url", "caption_col": "TEXT",
        "save_additional_columns": ["identifier"], "output_folder": out, "output_format": "webdataset",
        "image_size": _THUMBNAIL, "resize_mode": "keep_ratio_largest", "resize_only_if_bigger": True,
        "encode_quality": 85, "processes_count": _PROCESSES, "thread_count": _THREADS,
        "number_sample_per_shard": max(-(-len(seeds) // (2 * _PROCESSES)), 2),
    }  # fmt: skip
    command = [str(_PYTHON), "-m", "img2dataset.main", *(f"--{name}={value}" for name, value in settings.items())]
    cpu, memory = run_to_end(command, ROOT, os.environ, home / "output.txt")
    last = max(path.stat().st_mtime for path in out.glob("*.tar"))
    return Made({"all": cpu}, memory, _samples_in(out), last)


def _seeds_in_parquet(seeds: Sequence[Seed], home: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    columns = {
        "url": [seed.url for seed in seeds],
        "identifier": [seed.identifier for seed in seeds],
        "source": [seed.source for seed in seeds],
        "TEXT": [f"A picture of {seed.picture.stem}" for seed in seeds],
    }
    pq.write_table(pa.table(columns), home / "seeds.parquet")
    return home / "seeds.parquet"


def _samples_in(shards: Path) -> int:
    found = 0
    for path in shards.glob("*.tar"):
        with tarfile.open(path) as tar:
            found += sum(name.endswith(".json") for name in tar.getnames())
    return found


def crawl(crawler: Crawler, pictures: Sequence[Path], home: Path) -> Ran:
    """Have a crawler crawl the pictures; return what it took, from the first request to the last file."""
    folders = {f"source{number}": home / "sites" / str(number) for number in range(_SOURCES)}
    shares = {name: pictures[number::_SOURCES] for number, name in enumerate(folders)}
    names = {name: link(share, folders[name]) for name, share in shares.items()}
    with Site(folders, home / "nginx") as site:
        seeds = [
            Seed(f"{source}-{file}", f"{site.urls[source]}/{file}", source, picture)
            for source, share in shares.items()
            for file, picture in zip(names[source], share, strict=True)
        ]
        random.Random(0).shuffle(seeds)
        made = crawler(seeds, home)
        first = min(arrivals[0].time for arrivals in site.arrivals().values() if arrivals)
    return Ran(made.cpu, made.memory, made.samples, made.last - first)


def main() -> None:
    """Run the comparison."""
    parser = comparison("against_img2dataset", __doc__, rounds=3)
    parser.add_argument("--images", type=int, help="how many to fetch (default: each picture once)")
    parser.add_argument("--corpus", choices=corpus.CORPORA, default="all", help="which pictures, see corpus.py")
    chosen = parser.parse_args()
    if not _PYTHON.exists():
        parser.error(f"there is no {_PYTHON}: `make img2dataset` installs what this is held against")
    crawlers: dict[str, Crawler] = {"img2dataset": theirs, "crawlproject": ours}
    pictures = [path.resolve() for path in corpus.pictures(chosen.corpus)]
    images = list(islice(cycle(pictures), chosen.images or len(pictures)))
    size = sum(path.stat().st_size for path in images)
    print(f"{len(images)} images from {len(pictures)} pictures, {size / len(images) / 1024:.0f} KiB on average")
    for picture in pictures:
        picture.read_bytes()  # from the disk now, not during the first run
    smallest = sorted(pictures, key=lambda path: path.stat().st_size)[:_SOURCES]

    def run(name: str, home: Path, is_least: bool) -> Ran:
        return crawl(crawlers[name], smallest if is_least else images, home)

    compare(crawlers, run, chosen.rounds, "images")


if __name__ == "__main__":
    main()
