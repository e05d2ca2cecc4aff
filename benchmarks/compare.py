"""crawlproject against another version of itself: the same pictures from the same server, in one run.

    python -m benchmarks.compare [--also CHECKOUT ...] [--rounds N] [--images N] [--kinds jpeg,webp]

Each makes thumbnails of at most 640 pixels. Prints for each, as median of the rounds: CPU seconds per 1,000
images, the same without start and end, images a second, peak memory (measure.py says how), and what Redis took.
With more `--images` than there are pictures, each is served under several URLs. `--also` adds another checkout,
such as a git worktree of an older commit. Needs nginx.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import FAST, Crawler, Ran, Seed, Usage, compare, options, run_to_end
from benchmarks.ours import ROOT, Crawl

OURS = "crawlproject"


def ours(seeds: Sequence[Seed], home: Path, *, checkout: Path) -> Ran:
    """Run a worker of a checkout, with a Redis of its own; the seeds are in the list before it starts.

    Redis serves all workers of a crawl, so its CPU time is not the worker's: it is printed apart.
    """
    listed = home / "seeds.tsv"
    lines = (f"{seed.identifier}\t{seed.url}\t{seed.source}\n" for seed in seeds)
    listed.write_text("identifier\turl\tsource\n" + "".join(lines))
    with Crawl(home / "crawl", dict.fromkeys((seed.source for seed in seeds), FAST), {}, checkout) as crawl:
        crawl.scrapy("feed", str(listed))
        before = Usage.of(crawl.redis)
        cpu, memory = run_to_end(crawl.worker_command(1), checkout, crawl.environment, home / "output.txt")
        used = Usage.of(crawl.redis).since(before)
    made = [path.stat().st_mtime for path in crawl.thumbnails.rglob("*.jpg")]
    extra = {
        "round trips to Redis an image, at most": used.exchanges / len(seeds),
        "CPU s of Redis per 1,000 images": used.cpu / len(seeds) * 1000,
    }
    return Ran({"worker": cpu}, memory, max(made), len(made), extra)


def main() -> None:
    """Run the comparison."""
    parser = options("compare", __doc__, rounds=1)
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="CHECKOUT", help="another one")
    chosen = parser.parse_args()
    crawlers: dict[str, Crawler] = {
        f"{OURS} in {path}": partial(ours, checkout=path.resolve()) for path in chosen.also
    }
    compare(crawlers | {OURS: partial(ours, checkout=ROOT)}, chosen)


if __name__ == "__main__":
    main()
