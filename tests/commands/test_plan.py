"""`scrapy plan`: what a crawl of some size needs."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest

from crawlproject import config
from crawlproject.capacity import Demand, plan
from tests.conftest import Scrapy

SCALE = Path(__file__).parents[2] / "docs" / "scale.md"
EXAMPLES = re.findall(
    r"^    scrapy (plan [^\n]+)\n\n((?:    [^\n]*\n|\n(?=    ))+)", SCALE.read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("command", "said"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_the_examples_of_the_docs_are_what_it_says(scrapy: Scrapy, command: str, said: str) -> None:
    assert len(EXAMPLES) == 3
    done = scrapy(*shlex.split(command))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == said.split()


def test_the_figures_are_those_of_the_formulas(scrapy: Scrapy) -> None:
    words = "plan --images 1G --rate 8k --sources 2M --json --cpu-ms 20 --replicas 2 --core-price 1 --gb-price 0"
    found = json.loads(scrapy(*words.split()).stdout)
    assert found["days"] == pytest.approx(1e9 / 8000 / 86_400)
    assert found["allowed_rate"] == pytest.approx(2e6 * 0.2)
    assert found["sources_needed"] == math.ceil(found["sources_needed"])
    assert (found["redis_masters"], found["redis_replicas"]) == (6, 2)
    assert found["shards"] == 128
    used = 1e9 * 10 + 2e6 * (2159 + 127 * 300) + 2.1e6 * 166.5 + 1e6 * 802
    assert found["redis_bytes"] == pytest.approx(2 * used / 6)
    assert found["redis_share"] == pytest.approx(8000 / 6 / 2200)
    assert found["workers"] == math.ceil(8000 * 0.020 / 0.7)
    assert found["price"] == pytest.approx(24 * (18 + found["workers"]))


def test_the_fewest_sources_that_bear_the_rate_are_told() -> None:
    needed = plan(Demand(images=500_000_000, rate=1000, sources=1)).sources_needed
    assert needed is not None
    assert plan(Demand(images=500_000_000, rate=1000, sources=needed)).allowed_rate >= 1000
    assert plan(Demand(images=500_000_000, rate=1000, sources=needed - 1)).allowed_rate < 1000
    assert plan(Demand(images=10, rate=1000, sources=1)).sources_needed is None


def test_what_one_redis_cannot_do_is_for_a_cluster(scrapy: Scrapy) -> None:
    assert (
        "a Redis Cluster of 2 masters, 1,350/s each, with CRAWL_SHARDS=32."
        in scrapy("plan", "--images", "1M", "--rate", "2001").stdout
    )
    assert "Cluster" not in scrapy("plan", "--images", "1M", "--rate", "2000").stdout


def test_the_number_of_shards_is_one_that_the_setting_takes() -> None:
    shards = plan(Demand(images=10**9, rate=100_000, sources=10**6)).shards
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
    ],
)
def test_wrong_usage(scrapy: Scrapy, words: str) -> None:
    done = scrapy("plan", *words.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_small_crawls_have_a_plan(scrapy: Scrapy) -> None:
    assert scrapy("plan", "--images", "1", "--rate", "0.001").stdout.startswith("1 images at 0.001/s")
