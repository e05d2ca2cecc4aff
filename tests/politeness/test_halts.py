"""Sources that answer nothing but 500, with a worker: both kinds of halt, and where an operator reads of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.gallery import ANY_PATH, Gallery, set_faults
from tests.test_crawl import KEYS, Crawl

FAST, SLOW = "photos", "museum"


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    environment["CRAWL_MONITOR_FILE"] = str(tmp_path / "monitor.jsonl")
    one = Crawl(tmp_path, environment, redis_url)
    del one.environ["CRAWL_CIRCUIT_ERRORS"]
    yield one
    one.stop()


def changes(crawl: Crawl, source: str) -> list[dict[str, Any]]:
    """Return what the monitor file says of the circuit of a source."""
    file = crawl.folder / "monitor.jsonl"
    told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in told if line.get("source") == source]


def test_a_dead_source_is_halted_and_the_monitor_file_says_so(crawl: Crawl) -> None:
    for name, rate in ((FAST, 200), (SLOW, 5)):
        set_faults(crawl.source(name, rate), {ANY_PATH: {"status": 500}, "/robots.txt": {"status": 404}})
    catalogue = crawl.folder / "catalogue.json"
    rows = json.loads(catalogue.read_text())
    rows[0]["circuit"] = {
        "open": 1,
        "open_max": 1,
        "halt_after": 12,
    }  # by the second period
    rows[1]["circuit"] = {"open": 1, "open_max": 1}  # for five seconds of open periods, in place of 31
    for row in rows:
        row["hosts"] = ["127.0.0.1"]  # for which these rules hold
    catalogue.write_text(json.dumps(rows))
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        for name in (FAST, SLOW):
            crawl.seed(name, *(f"{number}.jpg" for number in range(150)))
        crawl.start(MAX_IDLE_TIME_BEFORE_CLOSE="0")
        crawl.until(lambda: crawl.redis.smembers(KEYS.halted) == {FAST.encode(), SLOW.encode()})
        for name in (FAST, SLOW):
            crawl.until(lambda name=name: changes(crawl, name)[-1]["type"] == "permanent")  # type: ignore[misc]
        crawl.command(f"resume {SLOW}")
        crawl.until(lambda: changes(crawl, SLOW)[-1]["event"] == "crawl_resumed")

    for name, reason in ((FAST, "12 errors in a row"), (SLOW, "5 open periods in a row without a success")):
        halts = [line for line in changes(crawl, name) if line["event"] == "crawl_halted"]
        assert [line["type"] for line in halts] == ["temporary"] * (len(halts) - 1) + ["permanent"]
        assert halts[0]["msg"].startswith(f'{name} tripped temporary halt. Response codes: {{"500": ')
        assert halts[-1]["msg"].startswith(f'{name} tripped permanent halt. Response codes: {{"500": ')
        assert halts[-1]["reason"] == reason
        assert halts[0]["by"].startswith("worker ")
        assert halts == [event for event in crawl.events(KEYS.halted_events) if event["source"] == name]
    museum = changes(crawl, SLOW)
    assert sum(line["event"] == "crawl_probing" for line in museum) == 5
    assert museum[-1]["by"].startswith("operator, scrapy resume, ")
    assert museum[-1]["msg"].startswith("museum resumed from permanent halt. ")
    for line in (*museum, *changes(crawl, FAST)):
        assert line["msg"] in crawl.log().replace('\\"', '"')
