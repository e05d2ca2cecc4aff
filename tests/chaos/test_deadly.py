"""A picture that kills whoever looks at it, among others that do not."""

from __future__ import annotations

import json
import signal

import pytest

from demo.gallery import Gallery
from tests.test_crawl import Crawl

PIPELINES = {
    "tests.chaos.deadly.DeadlyPipeline": 50,
    "crawlproject.pipelines.thumbnail.ThumbnailPipeline": 100,
}


@pytest.mark.slow
def test_a_picture_that_kills_its_workers_becomes_a_dead_letter_and_no_other_picture_is_lost(crawl: Crawl) -> None:
    crawl.source("museum", 40, pictures=60)
    crawl.options = ["-s", f"ITEM_PIPELINES={json.dumps(PIPELINES)}"]
    names = [f"{number}.jpg" for number in range(60)]
    names.insert(20, "0.jpg?deadly")

    def is_done() -> bool:
        """Keep two workers running until one has closed by itself."""
        statuses = [worker.poll() for worker in crawl.workers]
        crawl.start(max(2 - statuses.count(None), 0) if 0 not in statuses else 0, CRAWL_HEARTBEAT_TIMEOUT="1")
        return 0 in statuses

    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("museum", *names)
        crawl.until(is_done)
        crawl.finish()
    killed = [worker.returncode for worker in crawl.workers].count(-signal.SIGKILL)
    assert 1 <= killed <= 5  # a worker that stood still counts as lost, too
    assert crawl.dead() == {"museum-0.jpg?deadly": "lost with its worker, delivery 5"}
    assert crawl.outcomes() == {f"museum-{name}": 1 for name in names}
