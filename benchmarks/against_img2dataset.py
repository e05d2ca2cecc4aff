"""crawlproject against img2dataset: the same pictures from the same server into WebDataset's shards, in one run.

    make img2dataset
    python -m benchmarks.against_img2dataset [--python PYTHON] [--rounds N] [--images N] [--kinds KIND,...]
        [--longer-than PIXELS] [--imaging]

PYTHON is the interpreter of an environment that has img2dataset, by default that of `make img2dataset`. Both
read URLs and captions from one Parquet file, make pictures of at most 640 pixels, never enlarged, as JPEG of
quality 85, with EXIF and SHA-256, and end with tar and Parquet files. img2dataset has two processes, as the
machine has two cores; crawlproject has one worker with its two decoders, `scrapy feed` before it, `scrapy events
--follow` beside it, and Redis.

Prints, as median of the rounds, CPU seconds per 1,000 samples, without start and end, too; samples a second, from
the first request to the last file; bytes; peak memory of the largest process; what the imaging alone takes on both
sides; and how close the pictures are to a full decode with Lanczos (thumbnails.py). Needs nginx.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image
from PIL.ExifTags import Base

from benchmarks import corpus, thumbnails
from benchmarks.measure import SOURCES, Run, Seed, busy_seconds, run_to_end
from benchmarks.ours import ROOT, SCRAPY, Crawl
from benchmarks.roundtrips import Usage
from benchmarks.site import Site, link

_PYTHON = ROOT / ".crawl" / "benchmarks" / "img2dataset" / "bin" / "python"  # made by `make img2dataset`
OURS, THEIRS = "crawlproject", "img2dataset"
_IMAGES_CLAIMED = 500_000_000  # by each source: 200 requests a second, so that the worker's own speed is the limit
MOST_PIXELS = 100_000_000  # by CRAWL_MAX_PIXELS; img2dataset takes 13 GB for a PNG of 168 million with alpha
_PROCESSES = 2
_THREADS = 32  # of each of img2dataset's processes: its default, 256, is slower here

_IMAGING = {
    OURS: """
from crawlproject.imaging.analyse import analyse
from crawlproject.imaging.messages import Job
def look(body): return analyse(body, Job(10**9, 10**9, 85, 60)).thumbnails[0].data
""",
    THEIRS: """
import exifread, hashlib, io, json
from img2dataset.resizer import Resizer
resizer = Resizer(640, "keep_ratio_largest", True, encode_quality=85)
def look(body):
    made = resizer(io.BytesIO(body))
    assert made[5] is None
    json.dumps({k: str(v).strip() for k, v in exifread.process_file(io.BytesIO(body), details=False).items()})
    hashlib.sha256(body).hexdigest()
    return made[0]
""",
}
_LOOK_AT = """
import sys, time
from pathlib import Path
made = took = 0
for number, line in enumerate(sys.stdin.read().splitlines()):
    body = Path(line).read_bytes()
    began = time.process_time()
    try:
        picture = look(body)
    except Exception:
        continue
    took += time.process_time() - began
    made += 1
    (Path(sys.argv[1]) / f"{number}.jpg").write_bytes(picture)
print(made, took)
"""


@dataclass(frozen=True)
class Made:
    """What a run took, and the folder of its shards. `cpu` is that of all processes, `parts` by process (s)."""

    samples: int
    parts: Mapping[str, float]
    fixed: float
    seconds: float
    memory: int
    others: float
    bytes: int
    pictures: Mapping[Path, Path] = field(repr=False)

    @property
    def cpu(self) -> float:
        """CPU seconds per 1,000 samples."""
        return sum(self.parts.values()) / self.samples * 1000

    @property
    def marginal(self) -> float:
        """The same without start and end."""
        return (sum(self.parts.values()) - self.fixed) / self.samples * 1000

    @property
    def speed(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds


def ours(seeds: Path, home: Path, site: Site) -> tuple[dict[str, float], float, int, Path]:
    """Feed, crawl and write; return the CPU seconds by process, when it ended, the peak memory, and the shards.

    A reader writes the shards while the worker crawls. The end is that of the last picture, and what the reader
    took to close its files: the worker waits for more for a second before it ends.
    """
    crawl_of = Crawl(home / "crawl", dict.fromkeys(site.urls, _IMAGES_CLAIMED), {})
    out = home / "shards"
    with crawl_of as crawl:
        before = Usage.of(crawl.redis).cpu
        feed = [*SCRAPY, "feed", str(seeds), "--columns", "uuid=identifier", "--keep", "TEXT"]
        read = [*SCRAPY, "events", f"{out}:webdataset", "--caption", "TEXT", "--follow"]
        ran = {"feed": run_to_end(Run(feed, ROOT, crawl.environment, []), home / "feed.txt")}
        reader = subprocess.Popen(read, cwd=ROOT, env=crawl.environment)
        try:
            ran["worker"] = run_to_end(
                Run(crawl.worker_command(1), ROOT, crawl.environment, []), home / "worker.txt"
            )
        finally:
            began = time.monotonic()
            reader.terminate()
            _, status, usage = os.wait4(reader.pid, 0)
            reader.returncode = os.waitstatus_to_exitcode(status)
        if reader.returncode:
            sys.exit(f"{' '.join(read)} ended with {reader.returncode}")
        ran["events"] = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        cpu = {name: seconds for name, (seconds, _) in ran.items()}
        cpu["Redis"] = Usage.of(crawl.redis).cpu - before
        last = max(path.stat().st_mtime for path in crawl.thumbnails.rglob("*.jpg"))
        took = time.monotonic() - began
    return cpu, last + took, max(peak for _, peak in ran.values()), out


def theirs(python: str, seeds: Path, home: Path, count: int) -> tuple[dict[str, float], float, int, Path]:
    """Run img2dataset; return the same."""
    out = home / "shards"
    options = {
        "url_list": seeds, "input_format": "parquet", "url_col": "url", "caption_col": "TEXT",
        "save_additional_columns": ["identifier"], "output_folder": out, "output_format": "webdataset",
        "image_size": 640, "resize_mode": "keep_ratio_largest", "resize_only_if_bigger": True,
        "encode_quality": 85, "processes_count": _PROCESSES, "thread_count": _THREADS,
        "number_sample_per_shard": max(-(-count // (2 * _PROCESSES)), 2),
    }  # fmt: skip
    command = [python, "-m", "img2dataset.main", *(f"--{name}={value}" for name, value in options.items())]
    cpu, memory = run_to_end(Run(command, ROOT, dict(os.environ), []), home / "output.txt")
    last = max(path.stat().st_mtime for path in out.glob("*.tar"))
    return {"all": cpu}, last, memory, out


def measured(
    name: str, pictures: Sequence[Path], home: Path, python: str, fixed: float, *, extract: bool = False
) -> Made:
    """Run one of the two on the pictures."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    folders = {f"source{number}": home / "sites" / str(number) for number in range(SOURCES)}
    shares = {source: pictures[number::SOURCES] for number, source in enumerate(folders)}
    names = {source: link(share, folders[source]) for source, share in shares.items()}
    with Site(folders, home / "nginx") as site:
        seeds = [
            Seed(f"{source}-{file}", f"{site.urls[source]}/{file}", source, picture)
            for source, share in shares.items()
            for file, picture in zip(names[source], share, strict=True)
        ]
        random.Random(0).shuffle(seeds)
        columns = {
            "url": [seed.url for seed in seeds],
            "identifier": [seed.identifier for seed in seeds],
            "source": [seed.source for seed in seeds],
            "TEXT": [f"A picture of {seed.picture.stem}" for seed in seeds],
        }
        table = home / "seeds.parquet"
        pq.write_table(pa.table(columns), table)
        busy, began = busy_seconds(), time.monotonic()
        run = ours(table, home, site) if name == OURS else theirs(python, table, home, len(seeds))
        parts, last, memory, out = run
        spent = busy_seconds() - busy - sum(parts.values())
        others = spent / (time.monotonic() - began) / (os.cpu_count() or 1)
        first = min(arrivals[0].time for arrivals in site.arrivals().values() if arrivals)
    of = {seed.identifier: seed.picture for seed in seeds}
    made, samples = {}, 0
    for path in out.glob("*.tar"):
        with tarfile.open(path) as tar:
            files = {member.name: member for member in tar}
            samples += sum(file.endswith(".json") for file in files)
            for file in files if extract else ():
                if file.endswith(".json"):
                    stream = tar.extractfile(file)
                    assert stream is not None
                    identifier = json.loads(stream.read())["identifier"]
                    tar.extract(jpg := file.removesuffix("json") + "jpg", home / "pictures", filter="data")
                    made[of[identifier]] = home / "pictures" / jpg
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    return Made(samples, parts, fixed, last - first, memory, others, size, made)


def imaging(name: str, pictures: Sequence[Path], python: str, home: Path) -> dict[Path, Path]:
    """Have the imaging of one of the two make the pictures; print its CPU ms for each, and return them."""
    home.mkdir()
    code = _IMAGING[name] + _LOOK_AT
    done = subprocess.run(
        [sys.executable if name == OURS else python, "-c", code, str(home)],
        input="\n".join(map(str, pictures)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    made, took = done.stdout.split()[-2:]
    print(f"{name}, imaging alone: {float(took) / int(made) * 1000:.2f} CPU ms, {made} pictures", flush=True)
    files = {path: home / f"{number}.jpg" for number, path in enumerate(pictures)}
    return {path: file for path, file in files.items() if file.exists()}


def pixels(picture: Path) -> int:
    """Return how many pixels a picture has."""
    with Image.open(picture) as image:
        return image.width * image.height


def is_upright(picture: Path) -> bool:
    """Tell whether the EXIF of a picture does not turn it."""
    with Image.open(picture) as image:
        return bool(image.getexif().get(Base.Orientation, 1) == 1)


def compare_pictures(made: Mapping[str, Mapping[Path, Path]], sample: int) -> None:
    """Print how good the pictures are that both have made."""
    common = sorted(set.intersection(*(set(one) for one in made.values())))
    turned = [path for path in common if not is_upright(path)]
    print(f"\n{len(turned)} pictures are turned by their EXIF, which img2dataset does not heed: left out")
    random.Random(0).shuffle(common)
    usable = (path for path in common if path not in turned and thumbnails.comparable(path))
    looked_at = list(islice(usable, sample))
    smaller = [path for path in looked_at if thumbnails.longest_side(path) > 640]
    for title, some in ("made smaller", smaller), ("all", looked_at):
        print(f"{len(some)} pictures ({title}), median / 5th percentile")
        for name, files in made.items():
            found = [thumbnails.quality(files[path], path) for path in some]
            low = len(found) // 20
            psnr, ssim = sorted(one.psnr for one in found), sorted(one.ssim for one in found)
            size = sum(files[path].stat().st_size for path in some) / len(some) / 1000
            print(
                f"  {name:14}PSNR {median(psnr):.2f} / {psnr[low]:.2f} dB, "
                f"SSIM {median(ssim):.4f} / {ssim[low]:.4f}, {size:.1f} kB"
            )


def main() -> int:
    """Run the comparison; return 1 when crawlproject takes more CPU, or is worse."""
    options = _options()
    kinds = set(options.kinds.split(",")) if options.kinds else set(corpus.KINDS.values())
    pictures = [
        path.resolve()
        for path in corpus.pictures(options.corpus)
        if corpus.kind_of(path) in kinds
        and thumbnails.longest_side(path) > options.longer_than
        and pixels(path) <= MOST_PIXELS
    ]
    images = list(islice(cycle(pictures), options.images or len(pictures)))
    size = sum(path.stat().st_size for path in images)
    print(f"{len(images)} images from {len(pictures)} pictures, {size / len(images) / 1024:.0f} KiB on average")
    for picture in pictures:
        picture.read_bytes()  # from the disk now, not during the first run
    smallest = sorted(pictures, key=lambda path: path.stat().st_size)[:SOURCES]
    runs: dict[str, list[Made]] = {THEIRS: [], OURS: []}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        alone = {
            name: imaging(name, images if options.imaging else pictures, options.python, Path(temporary) / name)
            for name in runs
        }
        if options.imaging:
            compare_pictures(alone, options.sample)
            return 0
        for number in range(options.rounds):
            for name, some in runs.items():
                homes = [Path(temporary) / f"{number}-{name}-{what}" for what in ("fixed", "all")]
                for home in homes:
                    home.mkdir()
                fixed = sum(measured(name, smallest, homes[0], options.python, 0).parts.values())
                one = measured(name, images, homes[1], options.python, fixed, extract=number == 0)
                some.append(one)
                print(
                    f"round {number + 1}, {name}: {one.cpu:.2f} CPU s, {one.speed:.1f}/s; "
                    f"other programs had {one.others:.0%} of the machine",
                    flush=True,
                )
        report(runs)
        compare_pictures({name: some[0].pictures for name, some in runs.items()}, options.sample)
    ratio = _median(runs[OURS], lambda one: one.cpu) / _median(runs[THEIRS], lambda one: one.cpu)
    return 1 if ratio > 1 else 0


def report(runs: Mapping[str, Sequence[Made]]) -> None:
    """Print the medians."""
    print(f"\n{os.cpu_count()} cores, median of {len(runs[OURS])} rounds")
    print(f"{'':14}{'samples':>9}{'CPU s/1,000':>13}{'without start':>15}{'samples/s':>11}{'peak MB':>9}{'MB':>8}")
    for name, some in runs.items():
        print(
            f"{name:14}{some[0].samples:9}{_median(some, lambda one: one.cpu):13.2f}"
            f"{_median(some, lambda one: one.marginal):15.2f}{_median(some, lambda one: one.speed):11.1f}"
            f"{_median(some, lambda one: one.memory / 1e6):9.0f}{_median(some, lambda one: one.bytes / 1e6):8.1f}"
        )
    for part in runs[OURS][0].parts:
        seconds = _median(runs[OURS], lambda one, part=part: one.parts[part] / one.samples * 1000)
        print(f"  of that {part}: {seconds:.2f} CPU s/1,000")


def _median(runs: Sequence[Made], what: Callable[..., Any]) -> float:
    return float(median(map(what, runs)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against_img2dataset", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--python", default=str(_PYTHON), help="the interpreter of an environment that has img2dataset"
    )
    parser.add_argument("--imaging", action="store_true", help="compare that alone, without any crawl")
    parser.add_argument("--rounds", type=int, default=3, help="of each, in turn")
    parser.add_argument("--images", type=int, help="how many to fetch (default: each picture once)")
    parser.add_argument("--kinds", help="only these, such as jpeg,webp (default: all)")
    parser.add_argument(
        "--longer-than", type=int, default=0, metavar="PIXELS", help="only pictures with a longer side"
    )
    parser.add_argument("--sample", type=int, default=400, help="pictures whose quality is looked at")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the pictures")
    options = parser.parse_args()
    if shutil.which(options.python) is None:
        parser.error(f"there is no {options.python}: `make img2dataset` installs what this is held against")
    return options


if __name__ == "__main__":
    sys.exit(main())
