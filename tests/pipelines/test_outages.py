"""A whole crawl whose thumbnails cannot be stored: nothing is lost."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from demo.gallery import Gallery
from tests.storage.s3_gate import Gate, aws, made_bucket
from tests.test_crawl import KEYS, Crawl
from tests.waiting import PATIENCE_S


@pytest.fixture
def gate(gate: Gate, crawl: Crawl) -> Gate:
    settings, names = aws(gate.url), ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION_NAME")
    crawl.environ |= {f"AWS_{name}": settings[f"AWS_{name}"] for name in names}
    crawl.environ["IMAGES_STORE"] = "s3://thumbnails/"
    made_bucket(gate.url, "thumbnails")
    return gate


def logged(crawl: Crawl, words: str) -> list[int]:
    """Return in how many lines each worker's log has `words`."""
    return [crawl.log(number).count(words) for number in range(len(crawl.workers))]


def deliveries(crawl: Crawl) -> int:
    """Return how often requests that are queued or delayed were lost."""
    entries = [entry for key in crawl.redis.keys(KEYS.queue_of + "*") for entry in crawl.redis.lrange(key, 0, -1)]
    for key in crawl.redis.keys(KEYS.delayed_of + "*"):
        entries += [entry.partition(b"\n")[2] for entry in crawl.redis.zrange(key, 0, -1)]
    return sum(entry[1] for entry in entries)


def test_a_worker_whose_storage_hangs_stops_within_seconds_and_gives_back(crawl: Crawl, gate: Gate) -> None:
    crawl.source("photos", 100, pictures=100)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("photos", *(f"{n}.jpg" for n in range(100)))
        crawl.start(CRAWL_SHUTDOWN_GRACE="1")
        crawl.until(lambda: crawl.redis.xlen(KEYS.image_events) > 20)
        gate.mode = "hang"
        time.sleep(1)
        crawl.workers[0].terminate()
        assert crawl.workers[0].wait(PATIENCE_S) == 0
        assert "cannot be stored" not in crawl.log()  # it waited for no write to time out, which takes 40 s
        done = crawl.redis.xlen(KEYS.image_events)
        assert crawl.redis.hget(KEYS.counters, "outstanding") == str(100 - done).encode()
        assert not crawl.redis.keys(KEYS.leases_of + "*")
        assert deliveries(crawl) == 0
        gate.mode = "pass"
        crawl.run()
    assert crawl.outcomes() == Counter(f"photos-{n}.jpg" for n in range(100))
    assert not crawl.dead()
