"""A source that begins to fail in full flight, with two workers: what it gets after its circuit has opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from demo.gallery import ANY_PATH, Gallery, set_faults
from tests.test_crawl import KEYS, Crawl


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    one = Crawl(tmp_path, environment, redis_url)
    del one.environ["CRAWL_CIRCUIT_ERRORS"]
    yield one
    one.stop()


@pytest.mark.judges
def test_after_its_circuit_opens_a_source_gets_only_what_was_in_flight(crawl: Crawl) -> None:
    photos = crawl.source("photos", 200)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        rows = json.loads((crawl.folder / "catalogue.json").read_text())
        rules = {"open": 3, "halt_after": 1000}  # what is in flight at the trip counts, too
        rows[0] |= {"hosts": ["127.0.0.1"], "circuit": rules}
        (crawl.folder / "catalogue.json").write_text(json.dumps(rows))
        (photos / "0.jpg").write_bytes(b"")  # 200, and no picture: that is no fault of the source
        crawl.start(2, MAX_IDLE_TIME_BEFORE_CLOSE="0")  # the first to come waits for the other
        crawl.until(lambda: crawl.redis.zcard(KEYS.workers) == 2)
        crawl.seed("photos", *(f"0.jpg?{n}" for n in range(2000)))
        crawl.until(lambda: len(crawl.arrivals("photos")) > 100)
        set_faults(photos, {ANY_PATH: {"status": 503}})
        crawl.until(lambda: crawl.redis.smembers(KEYS.temp_halted))
        [halted] = crawl.events(KEYS.halted_events)
        crawl.until(lambda: not crawl.redis.smembers(KEYS.temp_halted))
        set_faults(photos, {})
        [first_probe] = crawl.redis.lrange(KEYS.statuses_of + "photos", 0, 0) or [b""]
        arrivals = crawl.arrivals("photos")

    tripped = datetime.fromisoformat(halted["time"]).timestamp()
    after = [arrival["t"] - tripped for arrival in arrivals if arrival["t"] > tripped]
    in_flight = [moment for moment in after if moment < 2.9]
    print(f"{len(in_flight)} arrivals after the trip, the last {max(in_flight, default=0):.3f} s later")
    # What had been sent, and what had slots until its worker heard of it: those of half a second at most; and
    # three probes.
    assert len(after) <= 100 + 3
    assert first_probe
