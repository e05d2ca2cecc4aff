"""The line of every five seconds, by whoever leads."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import pytest_asyncio

from crawlproject.frontier.codec import digest_of
from crawlproject.state.calls import NewRequest, Overview, Settlement
from crawlproject.state.client import State
from crawlproject.status import reporter as reporters
from crawlproject.status import sample as samples
from crawlproject.status.reporter import Reporter, present_spiders
from crawlproject.status.sample import Survey
from crawlproject.streams.streams import note_told, untold
from tests.commands.conftest import Frontier
from tests.state.calls.calls import within
from tests.waiting import until_async as until


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters, "INTERVAL_S", 0.2)
    monkeypatch.setattr(reporters, "_LOOK_S", 0.02)
    monkeypatch.setattr(reporters, "_TELL_S", 0.02)


class Crawl(Frontier):
    """A frontier whose lead goes to whom the test gives it."""

    async def lead_by(self, worker: str) -> None:
        await self.redis.delete(self.state.keys.leader)
        fence = await self.scripts.lead(worker, ready=True)
        assert fence is not None
        self.fence = fence

    async def fail(self, source: str, kind: str, count: int = 1) -> None:
        """Have `count` requests of a source become dead letters."""
        await self.feed(source, count)
        await self.scripts.settle(
            "w",
            [
                Settlement(lease, source, b"\x01\x00\x00x", dead="no", counts={f"error_{kind}": 1, "failed": 1})
                for lease in await self.lease(count)
            ],
        )

    async def collect(self) -> Overview:
        return await self.scripts.collect(timeout=30.0, most=samples.MOST_SOURCES)


@pytest_asyncio.fixture
async def crawl(state: State) -> Crawl:
    one = Crawl(state)
    await one.start()
    await one.catalogue({"museum": 200.0, "flickr": 200.0})
    return one


@pytest_asyncio.fixture
async def other(state: State) -> AsyncIterator[State]:
    """The connection of another worker."""
    one = State(state.config, "images")
    await one.open()
    yield one
    await one.close()


@asynccontextmanager
async def reporting(state: State, path: Path | None, **more: Any) -> AsyncIterator[Reporter]:
    one, log = Reporter(state, **more), logging.getLogger(reporters.__name__)
    if path is not None and not log.handlers:  # one for several reporters
        handler = logging.FileHandler(path, delay=True)
        handler.addFilter(lambda record: record.getMessage().startswith("{"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    one.start()
    try:
        yield one
    finally:
        await one.stop()
        for made in log.handlers[:]:
            log.removeHandler(made)
            made.close()


def lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last may be half written
    return [json.loads(line) for line in whole.splitlines()]


IMAGES: dict[str, Any] = {"counts": {"fetched": 1, "thumbnails": 1, "bytes": 500}, "latency": 0.2}


async def test_the_line_says_what_came_since_the_last_one(crawl: Crawl, state: State, tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    await crawl.settle("museum", ["200"] * 3, **IMAGES)
    await crawl.lead_by(state.worker_id)
    async with reporting(state, path):
        await until(lambda: lines(path))
        await crawl.settle("museum", ["200"] * 6, **IMAGES)
        await crawl.fail("flickr", "dns", 2)
        await crawl.feed("flickr", 4)
        await crawl.lease(1)
        await until(lambda: lines(path)[-1]["general"]["dead"] == 2)
        seen = len(lines(path))
        await until(lambda: len(lines(path)) > seen)
    told = lines(path)
    success = sum(one["general"]["success_rps"] * one["interval_s"] for one in told)
    error = sum(one["general"]["error_rps"] * one["interval_s"] for one in told)
    assert success == pytest.approx(6, rel=0.01)
    assert error == pytest.approx(2, rel=0.01)
    assert sum(sum(one["general"]["errors_now"].values()) for one in told) == 2
    latencies = [one["general"]["latency_p95_s"] for one in told if one["general"]["latency_p95_s"] is not None]
    assert all(0.15 < latency <= 0.25 for latency in latencies)
    assert latencies

    last = told[-1]
    assert list(last) == ["event", "time", "spider", "interval_s", "general", "specific"]
    assert last["event"] == "monitoring_update"
    general = last["general"]
    assert general["num_resized"] == 9
    assert general["bytes"] == 4500
    assert (general["outstanding"], general["in_flight"], general["workers"]) == (4, 1, 1)
    assert (general["sources"], general["sources_listed"], general["sources_in_progress"]) == (2, 2, 1)
    museum, flickr = last["specific"]["museum"], last["specific"]["flickr"]
    assert general["global_max_rps"] == museum["rate_limit"] + flickr["rate_limit"] == 400
    assert (museum["successful"], museum["error"], museum["last_50_statuses"]) == (9, 0, {"200": 9})
    assert (flickr["queued"], flickr["in_flight"], flickr["dead"], flickr["error"]) == (3, 1, 2, 2)
    assert flickr["errors"] == {"dns": 2}
    assert flickr["eta_s"] == pytest.approx(4 / 200)


async def test_a_new_leader_goes_on_where_the_last_one_stopped(
    crawl: Crawl, state: State, other: State, tmp_path: Path
) -> None:
    path = tmp_path / "monitor.jsonl"
    await crawl.lead_by(state.worker_id)
    async with reporting(state, path), reporting(other, path):
        await until(lambda: lines(path))
        await crawl.settle("museum", ["200"] * 5, **IMAGES)
        await crawl.lead_by(other.worker_id)
        await crawl.settle("museum", ["200"] * 7, **IMAGES)
        await until(lambda: lines(path)[-1]["general"]["num_resized"] == 12)
        await crawl.lead_by(state.worker_id)
        seen = len(lines(path))
        await until(lambda: len(lines(path)) > seen + 1)
    told = lines(path)
    assert [one["time"] for one in told] == sorted(one["time"] for one in told)
    told_of = sum(one["general"]["success_rps"] * one["interval_s"] for one in told)
    assert told_of <= 12.1  # nobody told anything twice


async def test_who_does_not_lead_writes_nothing_and_may_look(crawl: Crawl, state: State, tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    await crawl.lead_by("somebody else")
    async with reporting(state, path) as quiet, reporting(state, path, always=True) as looking:
        survey = looking.surveys["images"]
        await until(lambda: survey.made)
        assert quiet.latest_samples() == {"images": None}
        assert survey.made is not None
        assert survey.made.general["global_max_rps"] == 400
    assert not path.exists()


async def test_the_leader_reports_on_all_spiders_whichever_it_crawls(
    crawl: Crawl, state: State, tmp_path: Path
) -> None:
    path = tmp_path / "monitor.jsonl"
    await crawl.lead_by(state.worker_id)
    redis: Any = state.redis
    async with reporting(state, path, project=["images", "pages"]) as one:
        await until(lambda: lines(path))
        assert list(one.surveys) == ["images"]
        keys = state.beside("pages").keys
        await redis.hset(keys.totals, "pages", 4)
        await until(lambda: {line["spider"] for line in lines(path)} == {"images", "pages"})
        await redis.hincrby(keys.totals, "pages", 3)
        await until(lambda: sum(general(path, "pages")) > 0)
        assert set(one.latest_samples()) == {"images", "pages"}

        await crawl.lead_by("somebody else")
        await until(lambda: one.latest_samples() == {"images": None})
    assert not any(general(path, "images"))


def general(path: Path, spider: str) -> list[float]:
    return [line["general"]["success_rps"] for line in lines(path) if line["spider"] == spider]


async def test_what_a_leader_was_killed_with_is_told_by_the_next(crawl: Crawl, state: State) -> None:
    await crawl.redis.xadd(state.keys.audit, {"event": "{}"})
    await crawl.lead_by(state.worker_id)
    killed = await untold(state, 10)
    assert killed
    await crawl.redis.xadd(state.keys.audit, {"event": "[]"})
    assert [event for _, event in await untold(state, 10)] == [b"{}", b"[]"]
    await note_told(state, [entry for entry, _ in killed])
    assert [event for _, event in await untold(state, 10)] == [b"[]"]


async def test_halts_are_told_at_once_each_by_one_leader_in_the_log(
    crawl: Crawl, state: State, other: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "monitor.jsonl"

    def told() -> list[tuple[str, str, str]]:
        changes = [line for line in lines(path) if line["event"] != "monitoring_update"]
        return [(line["event"], line["type"], line["source"]) for line in changes]

    async def all_told() -> bool:
        [(newest, _)] = await crawl.redis.xrevrange(state.keys.audit, count=1)
        groups = await crawl.redis.xinfo_groups(state.keys.audit)
        return bool(groups and groups[0]["last-delivered-id"] == newest and not groups[0]["pending"])

    await crawl.settle("museum", ["500"] * 6)  # before anybody leads
    async with reporting(state, path), reporting(other, path):
        await crawl.lead_by(state.worker_id)
        await until(all_told)
        await crawl.lead_by(other.worker_id)
        await crawl.redis.xadd(state.keys.audit, {"event": "not ours"})
        await crawl.redis.sadd(state.keys.halted, "museum", "flickr")
        await crawl.scripts.watch(crawl.fence)
        await until(lambda: len(told()) == 3)
        await crawl.redis.srem(state.keys.halted, "museum")
        await crawl.scripts.watch(crawl.fence)
        await until(all_told)
        await crawl.lead_by(state.worker_id)
        seen = len(lines(path))
        await until(lambda: len(lines(path)) > seen + 3)
    first, *both, last = told()
    assert first == ("crawl_halted", "temporary", "museum")
    assert sorted(both) == [("crawl_halted", "permanent", name) for name in ("flickr", "museum")]
    assert last == ("crawl_resumed", "permanent", "museum")
    assert {record.levelname for record in caplog.records} == {"INFO", "WARNING"}


async def test_a_long_wait_at_an_unknown_size_is_logged_once(
    crawl: Crawl, state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "monitor.jsonl"
    await crawl.feed("photos.example", 130)
    await crawl.lead_by(state.worker_id)
    async with reporting(state, path):
        await until(lambda: len(lines(path)) > 2)
    [said] = [
        record.getMessage() for record in caplog.records if "scrapy rate photos.example 5" in record.getMessage()
    ]
    assert "its 130 requests take 0:10:50" in said


async def test_of_many_sources_those_in_trouble_with_results_and_with_work_are_looked_at(
    crawl: Crawl, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_SOURCES", 3)
    monkeypatch.setattr(samples, "_LEAST_SOURCES", 3)
    await crawl.catalogue({f"s{number}": 50.0 for number in range(30)})
    await crawl.settle("museum", ["200"], **IMAGES)
    await crawl.feed("s1", 1)
    await crawl.feed("s2", 1)
    overview = await crawl.collect()
    assert (set(overview.sources), overview.known, overview.due) == ({"museum", "s1", "s2"}, 32, 2)
    await crawl.redis.sadd(state.keys.halted, "s20")
    overview = await crawl.collect()
    assert overview.sources[:2] == ["s20", "museum"]
    assert set(overview.sources[2:]) < {"s1", "s2"}
    made = await Survey(state).take()
    assert list(made.sources) == overview.sources


async def test_general_sums_all_sources_also_those_that_are_not_listed(
    crawl: Crawl, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_SOURCES", 3)
    monkeypatch.setattr(samples, "_LEAST_SOURCES", 3)
    await crawl.catalogue({f"s{number}": 50.0 for number in range(30)})
    for number in range(30):
        await crawl.feed(f"s{number}", 1 if number < 12 else 3)
    for _ in range(12):  # some have nothing but requests in flight, some have both
        await crawl.lease(2)
    reader = Survey(state)
    assert await reader.look() is None
    await asyncio.sleep(0.01)
    made = await reader.look()
    assert made is not None
    assert len(made.specific) == made.general["sources_listed"] == 3
    assert made.general["global_max_rps"] == 2 * 200 + 30 * 50
    assert 18 <= made.general["sources_in_progress"] <= 30  # of those that are not listed, with waiting requests
    assert 0 < made.general["sources_in_flight"] <= 24


async def test_a_lease_lost_for_good_counts_in_all(crawl: Crawl, state: State) -> None:
    await crawl.feed("museum", 1)
    assert len(await crawl.lease(1)) == 1
    await crawl.scripts.heartbeat("other", join=True, timeout=30, max_deliveries=1)
    await crawl.redis.zadd(state.keys.workers, {"w": 0})
    await crawl.scripts.heartbeat("other", join=False, timeout=30, max_deliveries=1)
    overview = await crawl.collect()
    assert (overview.totals["failed"], overview.totals["deliveries_lost"]) == (1, 1)


async def test_sources_and_domains_in_flight_are_counted_as_they_are_leased(crawl: Crawl, state: State) -> None:
    urls = {
        "museum": ["http://a.museum.org/1", "http://b.museum.org/2", "https://museum.net/3"],
        "flickr": ["http://live.flickr.com/1", "http://museum.org/2", "http://[bad"],
    }
    for source, of_source in urls.items():
        requests = [
            NewRequest(b"\x01\x00\x00" + msgpack.packb({"url": url}), digest_of("", url), True, source)
            for url in of_source
        ]
        await within(crawl.scripts, high_water=99).enqueue("w", requests)
    reader = Survey(state)
    assert await reader.look() is None
    await crawl.lease(6)
    await asyncio.sleep(0.01)
    made = await reader.look()
    assert made is not None
    one = made.general
    # museum.org, museum.net, flickr.com
    assert (one["in_flight"], one["sources_in_flight"], one["domains_in_flight"]) == (6, 2, 3)
    await crawl.scripts.leave("w")
    await asyncio.sleep(0.01)
    made = await reader.look()
    assert made is not None
    assert (made.general["sources_in_flight"], made.general["domains_in_flight"]) == (0, 0)
    assert made.general["sources_in_progress"] == 2


async def test_spiders_are_there_once_they_have_seeds_requests_or_results(state: State) -> None:
    redis: Any = state.redis
    assert await present_spiders(state, ["images", "pages"]) == []
    await redis.lpush(state.beside("pages").keys.seeds, "https://example.org/")
    assert await present_spiders(state, ["images", "pages"]) == ["pages"]
    await redis.hset(state.keys.counters, "outstanding", 1)
    await redis.hset(state.beside("shop").keys.totals, "fetched", 1)  # of another project
    assert await present_spiders(state, ["images", "pages"]) == ["images", "pages"]
    await redis.zadd(state.keys.spiders, {"shop": 1, "images": 2, "idle": 3})
    assert await present_spiders(state, ["images", "pages"]) == ["images", "pages", "shop"]


@pytest.mark.parametrize("name", [b"'$(reboot)'", b"\xff", b"-s"])
async def test_a_name_that_no_shell_should_see_is_left_out(state: State, name: bytes) -> None:
    redis: Any = state.redis
    await redis.zadd(state.keys.spiders, {name: 1})
    await redis.hset(b"crawl:" + name + b":totals", "fetched", 1)
    assert await present_spiders(state) == []
