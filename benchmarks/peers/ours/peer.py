"""crawlproject as a peer: one worker, sources so large that its own speed is the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ours import ROOT, Crawl
from benchmarks.peers import Seed, Start
from benchmarks.roundtrips import Usage
from crawlproject.storage.blobs import thumbnail_name

_SIZE = 500_000_000  # images a source claims: 200 requests a second


class Ours:
    """One worker of crawlproject with its own Redis; the seeds are in the list before it starts.

    Redis serves all workers of a crawl and is not charged to this one; its CPU is told apart.
    """

    name = "crawlproject"
    about = "this project, one worker, politeness on (200 requests a second and source)"

    def __init__(self) -> None:
        self.extra: dict[str, float] = {}

    @contextmanager
    def prepared(self, seeds: Sequence[Seed], home: Path) -> Iterator[Start]:
        """Start Redis and feed the seeds; count what the worker asks of Redis."""
        listed = home / "seeds.tsv"
        lines = (f"{seed.identifier}\t{seed.url}\t{seed.source}\n" for seed in seeds)
        listed.write_text("identifier\turl\tsource\n" + "".join(lines))
        sizes = dict.fromkeys((seed.source for seed in seeds), _SIZE)
        with Crawl(home / "crawl", sizes, {}) as crawl:
            crawl.scrapy("feed", str(listed))
            before = Usage.of(crawl.redis)
            yield Start(crawl.worker_command(1), ROOT, crawl.environment)
            used = Usage.of(crawl.redis).since(before)
            self.extra = {
                "round trips an image, at least": used.commands / len(seeds),
                "round trips an image, at most": used.exchanges / len(seeds),
                "CPU s of Redis per 1,000 images": used.cpu / len(seeds) * 1000,
            }

    def thumbnails(self, seeds: Sequence[Seed], home: Path) -> dict[str, Path]:
        """Return the thumbnails by identifier."""
        store = home / "crawl" / "thumbnails"
        found = {seed.identifier: store / thumbnail_name(seed.identifier) for seed in seeds}
        return {identifier: path for identifier, path in found.items() if path.exists()}
