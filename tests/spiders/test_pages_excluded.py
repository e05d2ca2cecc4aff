"""An exclusion in the middle of a crawl of pages: nothing goes out but what was leased by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawlproject.frontier import codec
from tests.spiders.test_pages import KEYS, Answer, Crawl, html
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

PAGES = 4000


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    one = Crawl(tmp_path, environment, redis_url)
    yield one
    one.close()


@pytest.mark.parametrize("excluded", ["127.0.0.1", "site"])  # a host of a source, and a source
def test_what_is_excluded_gets_nothing_but_what_was_leased_by_then(crawl: Crawl, excluded: str) -> None:
    for number in range(PAGES):
        links = [f"/{other}" for other in range(3 * number + 1, 3 * number + 4) if other < PAGES]
        crawl.answers[f"/{number}"] = Answer(html(*links, text=str(number)))
    crawl.feed(crawl.home + "/0")
    workers = [crawl.start(MAX_IDLE_TIME_BEFORE_CLOSE="3") for _ in range(2)]
    until(lambda: crawl.redis.zcard(KEYS.workers) == 2 and len(crawl.seen) > 50)
    with crawl.redis.pipeline(transaction=True) as at_once:  # what is leased at the very moment
        at_once.sadd(KEYS.excluded, excluded)
        at_once.xrange(KEYS.page_events)
        for worker in crawl.redis.zrange(KEYS.workers, 0, -1):
            at_once.hvals(KEYS.leases_of + worker.decode())
        _, events, *held = at_once.execute()
    leased = {codec.url_of(entry).removeprefix(crawl.home) for entries in held for entry in entries}
    for worker in workers:
        said, _ = worker.communicate(timeout=2 * PATIENCE_S)
        assert worker.returncode == 0, said
    pages = crawl.pages()
    ended = [*pages][: len(events)]  # in the order of their ends
    assert {*crawl.seen} <= {*ended} | leased
    assert {*pages} <= {*ended} | leased
    assert crawl.dead() == {}
    assert int(crawl.redis.hget(KEYS.counters, "outstanding")) == 0
    assert [*crawl.redis.scan_iter(KEYS.queue_of + "*"), *crawl.redis.scan_iter(KEYS.overflow_of + "*")] == []
    totals = {name.decode(): int(count) for name, count in crawl.redis.hgetall(KEYS.totals).items()}
    assert totals["links_admitted"] + 1 == len(pages) + totals["excluded"]
