"""`kill -9` of a crawl of pages, and of its Redis, at each named moment: every URL that is admitted ends once."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawlproject.frontier import codec
from tests.spiders.killed_worker import MOMENTS
from tests.spiders.test_pages import IMAGES, KEYS, LICENCE, ROOT, Answer, Crawl, html
from tests.spiders.test_sitemaps import robots, urlset, xml
from tests.state.servers import Server
from tests.storage.warc_reading import all_records
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

PAGES = 40  # found by links
LISTED = 5  # found by the sitemap alone


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A Redis that has written what it has answered."""
    one = Server(tmp_path, appendfsync="always")
    yield one
    one.close()


def lay_out(crawl: Crawl) -> set[str]:
    """Make a site: pages with an image each, a sitemap, and pages that it alone names; return all pages."""
    for number in range(PAGES):
        links = [
            f"/{other}" for other in (2 * number + 1, 2 * number + 2, number // 2, number // 3) if other < PAGES
        ]
        image = f'<figure><img src="/{number % 30}.jpg"><a rel="license" href="{LICENCE}">BY</a></figure>'
        crawl.answers[f"/{number}"] = Answer(html(*links, text=f"{number}{image}"))
    listed = [f"/listed/{number}" for number in range(LISTED)]
    crawl.answers |= {path: Answer(html("/0", text=path)) for path in listed}
    crawl.answers["/robots.txt"] = robots(crawl.home + "/sitemap.xml")
    crawl.answers["/sitemap.xml"] = xml(urlset(*(crawl.home + path for path in listed)))
    crawl.environ |= {"CRAWL_HEARTBEAT_TIMEOUT": "1", "CRAWL_PAGES_STORE": str(crawl.folder / "warc")}
    crawl.feed(crawl.home + "/0")
    return {f"/{number}" for number in range(PAGES)} | {*listed}


def killed_at(crawl: Crawl, moment: str, number: int, *others: int) -> None:
    """Crawl until the worker is killed at that moment."""
    command = [sys.executable, "-m", "tests.spiders.killed_worker", moment, str(number), *map(str, others)]
    environ = crawl.environ | {"MAX_IDLE_TIME_BEFORE_CLOSE": "0"}
    worker = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    crawl.workers.append(worker)
    said, _ = worker.communicate(timeout=2 * PATIENCE_S)
    assert worker.returncode == -signal.SIGKILL, said


def assert_each_ended_once(crawl: Crawl, paths: set[str]) -> None:
    """Assert that each page of the site has one event, each image one request, and nothing was counted twice."""
    pages = crawl.pages()
    assert {*pages} == paths
    assert crawl.dead() == {}
    totals = {name.decode(): int(count) for name, count in crawl.redis.hgetall(KEYS.totals).items()}
    assert (totals["pages"], totals["good_pages"], totals["sitemaps"]) == (len(paths), len(paths), 1)
    admitted = len(paths) - 1 + 1  # but for the seed, and with the sitemap
    assert totals["links_admitted"] == admitted
    # Suspects come later, so pages may be found by more links than they are away: those are poor.
    [(source, ledger)] = crawl.redis.hgetall(KEYS.ledger).items()
    assert (source, [int(ledger.split()[at]) for at in (0, 2)]) == (b"site", [admitted, 1])
    queued = [
        codec.url_of(entry).removeprefix(crawl.home)
        for key in crawl.redis.scan_iter(IMAGES.queue_of + "*")
        for entry in crawl.redis.lrange(key, 0, -1)
    ]
    assert sorted(queued) == sorted(f"/{number}.jpg" for number in range(30))
    assert int(crawl.redis.hget(IMAGES.counters, "outstanding")) == 30
    left = [*crawl.redis.scan_iter(KEYS.leases_of + "*"), *crawl.redis.scan_iter(KEYS.queue_of + "*")]
    assert left == []
    assert_kept(crawl, pages)


def assert_kept(crawl: Crawl, pages: dict[str, dict[str, Any]]) -> None:
    """Assert that each event has its record, and that others are copies of pages that were fetched once more."""
    store = crawl.folder / "warc"
    for path, page in pages.items():
        place = page["record"]
        with (store / place["warc"]).open("rb") as file:
            file.seek(place["offset"])
            record = next(ArchiveIterator(io.BytesIO(file.read(place["length"])), check_digests="raise"))
        assert record.rec_headers["WARC-Target-URI"] == crawl.home + path
    responses = [one for one in all_records(store) if one.kind in {"response", "revisit"}]
    of_urls = Counter(one.named["WARC-Target-URI"].removeprefix(crawl.home) for one in responses)
    assert of_urls.keys() == pages.keys()
    fetched = Counter(crawl.seen)
    assert {path for path, count in of_urls.items() if count > fetched[path]} == set()
    assert list((store / ".open").glob("*.open")) == []


@pytest.mark.parametrize(("moment", "next_moment"), list(zip(MOMENTS[1::4], MOMENTS[3::4], strict=False)))
def test_workers_killed_at_any_moment_cost_no_page_and_double_none(
    crawl: Crawl, moment: str, next_moment: str
) -> None:
    paths = lay_out(crawl)
    killed_at(crawl, moment, 3)
    killed_at(crawl, next_moment, 1)
    crawl.run()
    assert_each_ended_once(crawl, paths)


@pytest.mark.parametrize("moment", [one for one in MOMENTS if one.startswith("during")])
def test_a_redis_killed_at_any_moment_costs_no_page_and_doubles_none(
    tmp_path: Path, environment: dict[str, str], server: Server, moment: str
) -> None:
    crawl = Crawl(tmp_path, environment | {"REDIS_URL": server.url}, server.url)
    try:
        paths = lay_out(crawl)
        killed_at(crawl, moment, 3, server.process.pid)
        server.process.wait()
        server.start()
        crawl.run()
        assert_each_ended_once(crawl, paths)
    finally:
        crawl.close()
