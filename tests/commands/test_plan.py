"""`scrapy plan`: what a crawl of some size needs."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest

from crawlproject import capacity, config, leader
from crawlproject.capacity import ASKED_A_SECOND, IMAGES, Demand, Plan, plan
from tests.conftest import Scrapy

SCALE = Path(__file__).parents[2] / "docs" / "scale.md"
EXAMPLES = re.findall(
    r"^    scrapy (plan [^\n]+)\n\n((?:    [^\n]*\n|\n(?=    ))+)", SCALE.read_text(), re.MULTILINE
)


def images(count: int, rate: float, sources: int) -> Plan:
    """Return the plan of a crawl of images, of which what is assumed by default is assumed."""
    return plan(
        Demand(
            count=count,
            rate=rate,
            sources=sources,
            body_bytes=IMAGES.body_bytes,
            kept_bytes=IMAGES.kept_bytes,
            cpu_ms=IMAGES.cpu_ms,
        )
    )


@pytest.mark.parametrize(("command", "said"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_the_examples_of_the_docs_are_what_it_says(scrapy: Scrapy, command: str, said: str) -> None:
    assert len(EXAMPLES) == 5
    done = scrapy(*shlex.split(command))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == said.split()


def test_the_figures_are_those_of_the_formulas(scrapy: Scrapy) -> None:
    words = "plan --images 1G --rate 8k --sources 2M --json --cpu-ms 20 --replicas 2 --core-price 1 --gb-price 0"
    found = json.loads(scrapy(*words.split()).stdout)
    assert found["days"] == pytest.approx(1e9 / 8000 / 86_400)
    assert found["allowed_rate"] == pytest.approx(2e6 * 0.2)
    assert found["sources_needed"] == math.ceil(found["sources_needed"])
    assert (found["redis_masters"], found["redis_replicas"]) == (7, 2)
    assert found["shards"] == 64
    used = 1e9 * 10 + 2e6 * (2159 + 63 * 300) + 2.1e6 * 166.5 + 1e6 * 802
    assert found["redis_bytes"] == pytest.approx(2 * used / 7)
    asked = found["workers"] * 64 / 7 * 0.45 * 95e-6
    assert found["redis_asked"] == pytest.approx(asked)
    assert found["redis_share"] == pytest.approx(8000 / 7 / 2200 + asked)
    assert found["workers"] == math.ceil(8000 * 0.020 / 0.7)
    assert found["price"] == pytest.approx(24 * (21 + found["workers"]))


def test_pages_have_their_links_in_the_seen_filter_and_in_the_overflow(scrapy: Scrapy) -> None:
    words = "plan --pages 200M --rate 700 --sources 50k --links 5 --link-bytes 2 --delay 100 --json"
    found = json.loads(scrapy(*words.split()).stdout)
    assert found["allowed_rate"] == pytest.approx(500)
    assert found["sources_needed"] == 70_000
    used = 1e9 * 2 + 50_000 * (2159 + 12_200) + 2.1e6 * 166.5 + 1e6 * 648
    assert (found["redis_masters"], found["redis_bytes"]) == (1, pytest.approx(2 * used))
    assert found["redis_share"] == pytest.approx(700 * 411e-6, rel=0.01)
    assert found["workers"] == math.ceil(700 / 90.3 / 0.7)
    assert found["thumbnail_bytes"] == 0
    assert found["record_bytes"] == pytest.approx(200e6 * 0.221 * 53_400, rel=0.01)
    assert found["overflow_bytes"] == pytest.approx(800e6 * 11.4)
    assert found["event_bytes"] == pytest.approx(200e6 * 648)


def test_a_delay_of_nothing_leaves_the_lowest_rate(scrapy: Scrapy) -> None:
    words = "plan --pages 1M --rate 1 --sources 1k --delay 0 --json"
    assert json.loads(scrapy(*words.split()).stdout)["allowed_rate"] == pytest.approx(200)


def test_what_no_memory_holds_is_for_a_cluster(scrapy: Scrapy) -> None:
    words = "plan --pages 1G --rate 100 --sources 100k --json"
    whole = json.loads(scrapy(*words.split(), "--redis-gb", "400").stdout)
    divided = json.loads(scrapy(*words.split(), "--redis-gb", "16").stdout)
    assert (whole["redis_masters"], whole["shards"]) == (1, 1)
    assert divided["redis_masters"] == math.ceil(divided["redis_bytes"] * divided["redis_masters"] / 16e9)
    assert divided["redis_masters"] > 10


@pytest.mark.parametrize("rate", [2_001, 5_000, 10_000, 30_000, 60_000])
def test_no_master_is_busier_than_planned_nor_are_there_more_than_it_takes(rate: float) -> None:
    found = images(10**9, rate, 10**6)
    assert found.redis_share <= capacity.PLANNED
    with_one_less = found.redis_share * found.redis_masters / (found.redis_masters - 1)
    assert with_one_less > capacity.PLANNED or found.redis_masters == found.shards / capacity.SHARDS_A_MASTER
    assert found.redis_masters * 8 < found.shards <= found.redis_masters * 16 or found.shards == 256


def test_workers_ask_each_shard_as_often_as_they_do() -> None:
    beat = min(config.load({}).heartbeat_timeout / 6, 5.0)  # see lease_keeper.py
    assert pytest.approx(1 / (leader._ELSEWHERE_S + leader._TICK_S) + 1 / beat) == ASKED_A_SECOND


def test_more_masters_than_shards_are_for_several_crawls(scrapy: Scrapy) -> None:
    several = "divide it into several, with a CRAWL_NAMESPACE each"
    assert several in scrapy("plan", "--images", "1G", "--rate", "1M").stdout
    assert several not in scrapy("plan", "--images", "1G", "--rate", "50k").stdout


def test_the_delay_is_that_of_the_setting() -> None:
    assert config.load({}).pages_delay == capacity.PAGE_DELAY


def test_the_fewest_sources_that_bear_the_rate_are_told() -> None:
    needed = images(500_000_000, 1000, 1).sources_needed
    assert needed is not None
    assert images(500_000_000, 1000, needed).allowed_rate >= 1000
    assert images(500_000_000, 1000, needed - 1).allowed_rate < 1000
    assert images(10, 1000, 1).sources_needed is None


def test_what_one_redis_cannot_do_is_for_a_cluster(scrapy: Scrapy) -> None:
    assert (
        "a Redis Cluster of 2 masters, 1,000/s each, with CRAWL_SHARDS=32."
        in scrapy("plan", "--images", "1M", "--rate", "2001").stdout
    )
    assert "Cluster" not in scrapy("plan", "--images", "1M", "--rate", "2000").stdout


def test_the_number_of_shards_is_one_that_the_setting_takes() -> None:
    shards = images(10**9, 100_000, 10**6).shards
    assert config.load({"REDIS_URL": "redis+cluster://a:1", "CRAWL_SHARDS": str(shards)}).shards == 256


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--images 5",
        "--rate 5",
        "--images 0 --rate 5",
        "--images 5 --rate x",
        "--images 5 --rate -1",
        "--images 1e9 --rate 1",
        "--images 5 --rate 1 --sources 6",
        "--images 5 --rate 1 --cpu-ms nan",
        "--images 5 --rate 1 more",
        "--images 5 --pages 5 --rate 1",
        "--images 5 --rate 1 --links 3",
        "--pages 5 --rate 1 --thumbnail-bytes 3",
        "--pages 5 --rate 1 --sources 6",
        "--pages 5 --rate 1 --redis-gb 0",
    ],
)
def test_wrong_usage(scrapy: Scrapy, words: str) -> None:
    done = scrapy("plan", *words.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_small_crawls_have_a_plan(scrapy: Scrapy) -> None:
    assert scrapy("plan", "--images", "1", "--rate", "0.001").stdout.startswith("1 images at 0.001/s")
