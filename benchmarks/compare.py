"""crawlproject against its peers: the same pictures from the same server, one after the other in one run.

    python -m benchmarks.compare [--rounds N] [--images N] [--kinds jpeg,webp] [--longer-than 640]

Prints for each peer, as median of the rounds: CPU seconds per 1,000 thumbnails, the same without start and end,
thumbnails a second, peak memory (measure.py says how), and how near its thumbnails are to a full decode with
Lanczos (thumbnails.py). Each picture is served under as many URLs as `--images` asks for. Ends with 1 when a
target is missed. Needs benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median

from benchmarks import corpus, thumbnails
from benchmarks.measure import Measured, measure, start_and_end
from benchmarks.peers import Peer
from benchmarks.peers.registry import PEERS

OURS, STOCK = "crawlproject", "stock"
MOST_CPU = 0.35  # of the stock pipeline's
MOST_ROUND_TRIPS = 0.3  # an image
THUMBNAIL = 640  # pixels


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
    peers = [peer for peer in PEERS if options.peers is None or peer.name in options.peers.split(",")]
    runs: dict[str, list[Measured]] = {peer.name: [] for peer in peers}
    made: dict[str, dict[Path, Path]] = {}
    with tempfile.TemporaryDirectory(prefix="crawl-") as temporary:
        for number, (place, peer) in product(range(1, options.rounds + 1), enumerate(peers)):
            home = Path(temporary) / f"{number}-{place}"
            fixed = start_and_end(peer, pictures, home / "fixed")
            one, made[peer.name] = measure(peer, images, home / "all", fixed)
            runs[peer.name].append(one)
            print(
                f"round {number}, {peer.name}: {one.cpu_per_thousand:.2f} CPU s, {one.speed:.1f}/s; "
                f"other programs had {one.others:.0%} of the machine",
                flush=True,
            )
        report(peers, runs)
        compare_thumbnails(made, options.sample)
    return verdict(runs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1, help="of each peer, in turn")
    parser.add_argument("--images", type=int, help="fetch so many (default: each picture once)")
    parser.add_argument("--kinds", help="only these, such as jpeg,webp (default: all)")
    parser.add_argument(
        "--longer-than", type=int, default=0, metavar="PIXELS", help="only pictures with a longer side"
    )
    parser.add_argument("--peers", help="only these (default: all)")
    parser.add_argument("--sample", type=int, default=400, help="pictures whose thumbnails are looked at")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder of the pictures")
    return parser.parse_args()


def report(peers: Sequence[Peer], runs: Mapping[str, Sequence[Measured]]) -> None:
    """Print the medians."""
    print(f"\n{os.cpu_count()} cores, median of {len(runs[peers[0].name])} rounds")
    print(f"{'':24}{'thumbnails':>11}{'CPU s/1,000':>13}{'without start':>15}{'images/s':>10}{'peak MB':>9}")
    for peer in peers:
        some = runs[peer.name]
        cpu, marginal = median(run.cpu_per_thousand for run in some), median(run.marginal for run in some)
        speed, memory = median(run.speed for run in some), median(run.memory for run in some) / 1e6
        print(f"{peer.name:24}{some[-1].images:11}{cpu:13.2f}{marginal:15.2f}{speed:10.1f}{memory:9.0f}")
    for peer in peers:
        print(f"{peer.name}: {peer.about}")
        for name in runs[peer.name][0].extra:
            print(f"  {name}: {median(run.extra[name] for run in runs[peer.name]):.3f}")


def compare_thumbnails(made: Mapping[str, Mapping[Path, Path]], sample: int) -> None:
    """Print how good the thumbnails of up to `sample` pictures are that all peers have made one of."""
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
                f"  {name:24}PSNR {median(psnr):.2f} / {psnr[low]:.2f} dB, "
                f"SSIM {median(ssim):.4f} / {ssim[low]:.4f}"
            )


def verdict(runs: Mapping[str, Sequence[Measured]]) -> int:
    """Print the ratios, and return whether a target is missed."""
    if OURS not in runs:
        return 0
    print()
    missed = 0
    ours = runs[OURS]
    for name, others in runs.items():
        if name == OURS:
            continue
        pairs = list(zip(ours, others, strict=True))
        cpu = median(one.cpu_per_thousand / other.cpu_per_thousand for one, other in pairs)
        marginal = median(one.marginal / other.marginal for one, other in pairs)
        speed = median(one.speed / other.speed for one, other in pairs)
        target = f" (target: at most {MOST_CPU})" if name == STOCK else ""
        missed += name == STOCK and cpu > MOST_CPU
        print(f"{OURS} / {name}: CPU {cpu:.3f}{target}, without start {marginal:.3f}, images/s {speed:.2f}")
    trips = median(run.extra["round trips an image, at most"] for run in ours)
    missed += trips > MOST_ROUND_TRIPS
    print(f"round trips to Redis an image: at most {trips:.3f} (target: at most {MOST_ROUND_TRIPS})")
    print(f"targets missed: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
