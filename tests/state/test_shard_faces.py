"""What operators see and do of a crawl of several shards, all of which answer, or all but one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import redis

from crawlproject import config, controls, healthcheck
from crawlproject.exclusions.stored import excluded_names
from crawlproject.metrics.collectors import CrawlCollector
from crawlproject.state.client import State
from crawlproject.status.reporter import Report, Reporter
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.source_status import source_statuses
from crawlproject.status.spiders import present_spiders
from tests.leading import lead
from tests.state.scripts.calls import request
from tests.state.servers import Cluster
from tests.waiting import until, until_async

if TYPE_CHECKING:
    from tests.conftest import Scrapy

SHARDS = 4
BY = "scrapy halt, alice@vm1"
NAMES = [f"museum{number}" for number in range(12)]
RATES = {name: float(number) for number, name in enumerate(NAMES, 1)}


@pytest_asyncio.fixture
async def state(cluster_url: str) -> AsyncIterator[State]:
    """A crawl of twelve sources, with two requests each, in four shards."""
    environ = {"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}
    for number in range(SHARDS):  # which notes with each how many there are
        await (await opened(environ, number)).close()
    one = await opened(environ)
    for shard in one.shards:
        fence = await lead(shard)
        await shard.redis.persist(shard.keys.leader)
        here = [name for name in NAMES if one.shard_for(name) is shard]
        assert here
        await shard.scripts.set_rates(fence, [(name, RATES[name], RATES[name]) for name in here], {})
        await shard.scripts.heartbeat(f"vm1:{shard.number}:a", join=True, timeout=30, max_deliveries=3)
        await _enqueue(shard, here)
    yield one
    await one.close()


async def _enqueue(shard: State, names: list[str]) -> None:
    requests = [
        request(name, 2 * NAMES.index(name) + number, source=name) for name in names for number in range(2)
    ]
    await shard.scripts.enqueue(f"vm1:{shard.number}:a", requests)


@contextmanager
def without(cluster: Cluster, shard: State) -> Iterator[set[int]]:
    """Have the node of a shard, and its replica, be away; the numbers are those of all shards that it has."""
    node = cluster.owner_of(shard.keys.rates)
    node.client.wait(1, 1000)
    away = {one.number for one in shard.shards if cluster.owner_of(one.keys.rates) is node}
    replica = cluster.replica_of(node)
    node.kill()
    replica.kill()
    try:
        yield away
    finally:
        node.start()
        replica.start()
        until(cluster.is_whole)


async def look(reader: Survey) -> Snapshot:
    made: Any = await until_async(reader.look, despite=redis.RedisError)
    assert isinstance(made, Snapshot)
    return made


async def test_what_all_shards_have_is_summed(state: State) -> None:
    reader = Survey(state)
    assert await reader.look() is None
    made = await look(reader)
    assert (made.general["outstanding"], made.general["sources"], made.general["workers"]) == (24, 12, 4)
    assert made.general["global_max_rps"] == sum(RATES.values())
    assert list(made.specific) == sorted(NAMES)
    assert made.general["shards_stopped"] == {}
    assert [row.rate_limit async for _, row in source_statuses(state, NAMES)] == list(RATES.values())
    assert await present_spiders(state, ["images", "pages"]) == ["images"]


async def test_orders_go_to_the_shard_of_each_source(state: State) -> None:
    await controls.halt(state, NAMES, BY)
    assert {row.state async for _, row in source_statuses(state, NAMES)} == {"halted"}
    assert await controls.resume(state, [*NAMES, "unheard-of"], BY) == NAMES
    await controls.set_rate(state, NAMES[0], "0.5", BY)
    await controls.set_rate(state, NAMES[1], "7", BY)
    found = [status.override async for status, _ in source_statuses(state, NAMES)]
    assert found == [b"0.5", b"7", *[None] * 10]
    assert await controls.purgeable(state, NAMES[5]) == 2
    assert await controls.purge(state, NAMES[5], BY) == 2
    assert await controls.exclude(state, [*NAMES[6:8], "example.org"], "asked", BY) == {
        NAMES[6]: 2,
        NAMES[7]: 2,
        "example.org": 0,
    }
    assert [one.name for one in await excluded_names(state)] == ["example.org", *NAMES[6:8]]
    assert await controls.include(state, ["example.org", "nothing"], BY) == {
        "example.org": "included",
        "nothing": "not excluded",
    }


async def test_all_sources_are_listed_however_they_are_divided_if_they_are_not_too_many(state: State) -> None:
    shard = state.shards[2]
    many = [name for name in map("photos{}.example".format, range(5000)) if state.shard_for(name) is shard]
    await shard.redis.sadd(shard.keys.sources, *many[:600])
    reader = Survey(state)
    await reader.look()
    assert len((await look(reader)).specific) == 612
    await shard.redis.sadd(shard.keys.sources, *many[:990])  # too many of all
    await reader.look()
    made = await look(reader)
    assert made.general["sources"] == 1002
    assert len(made.specific) < 1002


@pytest.mark.slow
async def test_a_shard_that_is_away_is_said_to_be_and_hides_no_other(cluster: Cluster, state: State) -> None:
    reader = Survey(state)
    await reader.look()
    before = await look(reader)
    gone = next(
        shard
        for shard in state.shards[1:]
        if cluster.owner_of(shard.keys.rates) is not cluster.owner_of(state.shards[0].keys.rates)
    )
    with without(cluster, gone) as away:
        made = await look(reader)
        while len(made.general["shards_stopped"]) < len(away):
            made = await look(reader)
        assert set(map(int, made.general["shards_stopped"])) == away
        assert all("does not answer" in reason for reason in made.general["shards_stopped"].values())
        assert "shards_stopped" in made.general["trouble"]
        assert (made.general["paused"], made.general["outstanding"]) == (None, 24)  # as it was seen last
        assert made.specific.keys() == before.specific.keys()
        assert made.general["success_rps"] == 0
        metrics = {one.name: one for one in CrawlCollector(lambda: {"images": made.sample}).collect()}
        assert metrics["crawl_stopped_shards"].samples[0].value == len(away)
        faults: dict[State, str] = {}
        rows = [row.source async for _, row in source_statuses(state, NAMES, faults)]
        assert rows == [name for name in NAMES if state.shard_for(name).number not in away]
        assert {shard.number for shard in faults} == away
        there = next(name for name in NAMES if state.shard_for(name) is gone)
        with pytest.raises(redis.ConnectionError, match=f"shard {gone.number} of 4 does not answer .*{there}"):
            await controls.halt(state, NAMES, BY)
        halted = [row.state async for _, row in source_statuses(state, rows)]
        assert set(halted) == {"halted"}
    await until_async(gone.redis.ping, despite=redis.RedisError)


async def test_explain_finds_what_a_redirect_has_led_to_another_shard(
    cluster: Cluster, cluster_url: str, state: State, scrapy: Scrapy
) -> None:
    """Its event, or its dead letter; a shard that is away hides those of no other."""
    url = "http://s1.example/1.jpg"
    environ: Any = {"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}
    own = cluster.owner_of(state.shard_for("s1.example").keys.rates)
    there = next(shard for shard in state.shards if cluster.owner_of(shard.keys.rates) is not own)
    event = {"url": url, "identifier": "a", "source": "elsewhere", "thumbnail": "a.jpg", "status": 200}
    await there.redis.xadd(there.keys.image_events, {"event": json.dumps(event)})
    done = await asyncio.to_thread(scrapy, "explain", "--json", url, **environ)
    ended = json.loads(done.stdout)["ended"]
    assert (ended["outcome"], ended["thumbnail"]) == ("image", "a.jpg"), done.stderr
    with without(cluster, there) as away:
        done = await asyncio.to_thread(scrapy, "explain", "--json", url, **environ)
        assert json.loads(done.stdout)["ended"] is None, done.stderr
        for number in away:
            assert f"shard {number} of 4 does not answer" in done.stderr


@pytest.mark.slow
async def test_without_a_node_a_worker_is_well_and_commands_say_what_is_missing(
    cluster: Cluster, cluster_url: str, state: State, scrapy: Scrapy
) -> None:
    """That of the note of how many shards there are, which each shard repeats."""
    environ: Any = {"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}
    noted = cluster.owner_of("{crawl}:layout")
    gone = next(shard for shard in state.shards if cluster.owner_of(shard.keys.rates) is noted)
    with without(cluster, gone) as away:
        there = [name for name in NAMES if state.shard_for(name).number not in away]
        assert await healthcheck.check(config.load(environ), "vm1") is None
        with pytest.raises(redis.RedisError):  # it may be in those that are away
            await healthcheck.check(config.load(environ), "vm2")

        async def said(*words: str, code: int = 0) -> Any:
            done = await asyncio.to_thread(scrapy, *words, "--json", **environ)
            assert done.returncode == code, done.stderr
            return json.loads(done.stdout or "null"), done.stderr

        rows, _ = await said("shards", code=1)
        assert {row["shard"] for row in rows if "fault" in row} == away
        top, _ = await said("top", "--interval", "0.5")
        assert sorted(top["specific"]) == sorted(there)
        assert set(map(int, top["general"]["shards_stopped"])) == away
        rows, _ = await said("sources")
        assert [row["source"] for row in rows] == sorted(there)
        assert (await said("halt", there[0]))[0] == {"halted": [there[0]]}
        _, fault = await said("stats", code=1)
        assert f"shard {min(away)} of 4 does not answer" in fault
        assert "the totals are those of all shards" in fault
        worker = await opened(environ)
        assert worker.number not in away
        await worker.close()
    await until_async(gone.redis.ping, despite=redis.RedisError)


async def opened(environ: dict[str, str], number: int | None = None) -> State:
    one = State(config.load(environ), "images", number)
    await one.open()
    return one


@pytest.mark.slow
async def test_without_the_first_shard_who_led_last_reports_on_the_others(cluster: Cluster, state: State) -> None:
    lines: list[str] = []

    async def write(line: str) -> None:
        lines.append(line)

    first = state.shards[0]
    await first.redis.set(first.keys.leader, first.worker_id)
    leading, watching = Report(first, write, always=False), Report(first, write, always=True)
    await leading.step()
    await watching.step()
    assert leading.leads
    with without(cluster, first) as away:

        async def is_told(report: Report) -> bool:
            await report.step()
            return report.latest is not None and set(report.latest.sample.stopped) == away

        assert await until_async(lambda: is_told(leading), despite=redis.RedisError)
        assert json.loads(lines[-1])["general"]["outstanding"] == 24  # as it was seen last
        assert set(map(int, json.loads(lines[-1])["general"]["shards_stopped"])) == away
        count = len(lines)
        watching.leads = False
        assert await until_async(lambda: is_told(watching), despite=redis.RedisError)
        assert len(lines) == count
    await until_async(first.redis.ping, despite=redis.RedisError)


async def test_a_new_leader_shows_no_rates_of_shards_that_were_not_in_the_last_sample(state: State) -> None:
    lines: list[str] = []

    async def write(line: str) -> None:
        lines.append(line)

    first = state.shards[0]
    await first.redis.set(first.keys.leader, first.worker_id)
    report = Report(first, write, always=False)
    await report.step()
    assert report.latest_sample is not None
    assert report.latest_sample.shards == (0, 1, 2, 3)
    assert report.latest is None


def test_the_commands_work_on_all_shards(state: State, cluster_url: str, scrapy: Scrapy) -> None:
    environ: Any = {"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}

    def said(*words: str) -> Any:
        done = scrapy(*words, "--json", **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert [row["source"] for row in said("sources")] == sorted(NAMES)
    assert said("halt", *NAMES) == {"halted": NAMES}
    assert said("resume", *NAMES)["resumed"] == NAMES
    assert said("rate", NAMES[2], "2")["override"] == 2.0
    assert said("explain", NAMES[2])["rate_limit"] == RATES[NAMES[2]]
    assert said("explain", "http://museum2.example/a.jpg")["source"] == "museum2.example"
    assert said("report", NAMES[2])["source"] == NAMES[2]
    totals = said("stats")
    assert (totals["outstanding"], totals["workers"], len(totals["sources"])) == (24, 4, 12)
    assert said("top", "--interval", "0.5")["general"]["outstanding"] == 24
    assert said("dead", "list") == []
    assert said("events", "--readers") == []
    shards = said("shards")
    assert [row["shard"] for row in shards] == list(range(SHARDS))
    assert [row["requests"] for row in shards] == [
        2 * sum(state.shard_for(name).number == number for name in NAMES) for number in range(SHARDS)
    ]
    assert {row["leader"] for row in shards} == {"leader"}
    assert [row["workers"] for row in shards] == [1] * SHARDS
    assert all(row["replicas"] == 1 and row["node_bytes"] > 0 for row in shards)
    assert len({row["node"] for row in shards}) == 3
    assert [row["sent"] for row in shards] == [0] * SHARDS
    text = scrapy("shards", **environ).stdout
    assert text.splitlines()[-1] == "4 shards"
    assert "bytes behind, last heard from" in text


async def test_dead_letters_of_all_shards_are_listed_retried_and_dropped(
    state: State, cluster_url: str, scrapy: Scrapy
) -> None:
    environ: Any = {"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}
    for number, name in enumerate(NAMES):
        shard = state.shard_for(name)
        seed = json.dumps({"url": f"http://{name}.example/{number}.jpg"})
        await shard.redis.xadd(
            shard.keys.dead, {"seed": seed, "source": name, "reason": "gone"}, id=f"{number + 1}-1"
        )
    done = scrapy("dead", "list", "--json", **environ)
    assert [letter["source"] for letter in json.loads(done.stdout)] == sorted(
        NAMES, key=lambda name: (state.shard_for(name).number, NAMES.index(name))
    )
    done = scrapy("dead", "drop", "--source", NAMES[4], "--json", **environ)
    assert json.loads(done.stdout) == {"dropped": 1}
    done = scrapy("dead", "retry", "--json", **environ)
    assert json.loads(done.stdout) == {"retried": 11}
    assert [await shard.redis.xlen(shard.keys.dead) for shard in state.shards] == [0] * SHARDS


async def test_the_audit_trails_of_all_shards_that_it_leads_are_told(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(state.config, state, always=True)
    mine = state.shards[1:]
    for shard in mine:
        await shard.redis.set(shard.keys.leader, shard.worker_id)
    await controls.exclude(state, ["example.org"], "", BY)

    def told() -> int:
        return sum("example.org is excluded" in record.message for record in caplog.records)

    await reporter._tell()
    assert told() == len(mine)
    await reporter._tell()
    assert told() == len(mine)
