"""What operators see and do of a crawl of several shards, all of which answer, or all but one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import redis
from redis.asyncio import Redis

from crawlproject import config, controls, healthcheck
from crawlproject.exclusions import excluded_names
from crawlproject.state.client import State
from crawlproject.state.source_table import unread_keys
from crawlproject.status.reporter import present_spiders
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.source_status import sample_sources
from tests.state.calls.calls import join, lead, request
from tests.state.servers import Server, opened
from tests.waiting import until_async

if TYPE_CHECKING:
    from tests.conftest import Scrapy

BY = "scrapy halt, alice@vm1"
NAMES = [f"museum{number}" for number in range(12)]
RATES = {name: float(number) for number, name in enumerate(NAMES, 1)}


@pytest.fixture
def shared(server: Server, redis_url: str) -> dict[str, Any]:
    """What all processes of the crawl have in their environment."""
    return {"REDIS_URL": f"{server.url} {redis_url}", "CRAWL_SHARDS": "2"}


@pytest_asyncio.fixture
async def state(shared: dict[str, Any]) -> AsyncIterator[State]:
    """A crawl of twelve sources, with two requests each, in two shards; seen from the second one."""
    await (await opened(shared["REDIS_URL"], 0, CRAWL_SHARDS=2)).close()  # which notes how many there are
    one = await opened(shared["REDIS_URL"], 1, CRAWL_SHARDS=2)
    for shard in one.shards:
        fence = await lead(shard)
        await shard.redis.persist(shard.keys.leader)
        here = [name for name in NAMES if one.shard_for(name) is shard]
        await shard.scripts.set_rates(fence, [(name, RATES[name], RATES[name]) for name in here], {})
        await join(shard, f"vm1:{shard.number}:a")
        await shard.scripts.enqueue(
            "w", [request(name, 2 * NAMES.index(name) + n, source=name) for name in here for n in range(2)]
        )
    yield one
    await one.close()


async def look(reader: Survey) -> Snapshot:
    made: Any = await until_async(reader.look, despite=redis.RedisError)
    assert isinstance(made, Snapshot)
    return made


async def test_what_all_shards_have_is_summed(state: State) -> None:
    reader = Survey(state)
    assert await reader.look() is None
    made = await look(reader)
    assert (made.general["outstanding"], made.general["sources"], made.general["workers"]) == (24, 12, 2)
    assert made.general["global_max_rps"] == sum(RATES.values())
    assert list(made.specific) == sorted(NAMES)
    assert made.general["shards_stopped"] == {}
    assert [one.rate_limit async for one in sample_sources(state, NAMES)] == list(RATES.values())
    assert await present_spiders(state, ["images", "pages"]) == ["images"]


async def test_orders_go_to_the_shard_of_each_source(state: State) -> None:
    await controls.halt(state, NAMES, BY)
    assert {one.state async for one in sample_sources(state, NAMES)} == {"halted"}
    assert await controls.resume(state, [*NAMES, "unheard-of"], BY) == NAMES
    await controls.set_rate(state, NAMES[0], "0.5", BY)
    await controls.set_rate(state, NAMES[1], "7", BY)
    found = [one.status.override async for one in sample_sources(state, NAMES)]
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


async def test_an_order_without_the_tag_of_its_shard_is_found(state: State) -> None:
    source = NAMES[0]
    for shard in state.shards:
        await shard.redis.set(f"crawl:override_rate:{source}", "5")
    keys = state.shard_for(source).keys
    meant = (keys.override_rate_of + source, f"scrapy rate {source} RPS")
    found = {shard: await unread_keys(shard, NAMES) for shard in state.shards}
    assert found.pop(state.shard_for(source)) == {f"crawl:override_rate:{source}": meant}
    assert list(found.values()) == [{}]


async def test_who_may_use_the_keys_of_the_crawl_alone_looks_for_no_others(state: State, redis_url: str) -> None:
    shard = state  # the one in this Redis
    await shard.redis.acl_setuser("narrow", enabled=True, nopass=True, keys=["{crawl:*"], commands=["+@all"])
    try:
        async with Redis.from_url(redis_url.replace("unix://", "unix://narrow:any@")) as narrow:
            shard.redis, given = narrow, shard.redis
            assert await unread_keys(shard, NAMES) == {}
            shard.redis = given
    finally:
        await shard.redis.acl_deluser("narrow")


async def test_a_shard_that_is_away_is_said_to_be_and_hides_no_other(
    server: Server, shared: dict[str, Any], state: State, scrapy: Scrapy
) -> None:
    reader = Survey(state)
    await reader.look()
    before = await look(reader)
    gone = [name for name in NAMES if state.shard_for(name).number == 0]
    there = [name for name in NAMES if name not in gone]
    server.kill()
    made = await look(reader)
    assert list(made.general["shards_stopped"]) == ["0"]
    assert "does not answer" in made.general["shards_stopped"]["0"]
    assert "shards_stopped" in made.general["trouble"]
    assert (made.general["paused"], made.general["outstanding"]) == (None, 24)  # as it was seen last
    assert made.specific.keys() == before.specific.keys()
    assert made.general["success_rps"] == 0
    faults: dict[State, str] = {}
    assert [one.source async for one in sample_sources(state, NAMES, faults)] == there
    assert list(faults) == [state.shards[0]]
    with pytest.raises(redis.ConnectionError, match=f"shard 0 of 2 does not answer .*{gone[0]}"):
        await controls.halt(state, NAMES, BY)
    assert {one.state async for one in sample_sources(state, there)} == {"halted"}
    assert await healthcheck.check(config.load(shared), "vm1") is None
    with pytest.raises(redis.RedisError):  # it may be in the shard that is away
        await healthcheck.check(config.load(shared), "vm2")
    rows = json.loads(scrapy("shards", "--json", **shared).stdout)
    assert ["fault" in row for row in rows] == [True, False]
    done = scrapy("stats", "--json", **shared)
    assert done.returncode == 1
    assert "shard 0 of 2 does not answer" in done.stderr
    assert "the totals are those of all shards" in done.stderr


def test_the_commands_work_on_all_shards(state: State, shared: dict[str, Any], scrapy: Scrapy) -> None:
    def said(*words: str) -> Any:
        done = scrapy(*words, "--json", **shared)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert [row["source"] for row in said("sources")] == sorted(NAMES)
    totals = said("stats")
    assert (totals["outstanding"], totals["workers"], len(totals["sources"])) == (24, 2, 12)
    assert said("top", "--interval", "0.5")["general"]["outstanding"] == 24
    assert said("events", "--readers") == []
    counts = Counter(state.shard_for(name).number for name in NAMES)
    assert [
        [row[name] for name in ("shard", "leader", "workers", "sent", "requests")] for row in said("shards")
    ] == [[number, "leader", 1, 0, 2 * counts[number]] for number in (0, 1)]
    assert scrapy("shards", **shared).stdout.splitlines()[-1] == "2 shards"


async def test_dead_letters_of_all_shards_are_listed_retried_and_dropped(
    state: State, shared: dict[str, Any], scrapy: Scrapy
) -> None:
    for number, name in enumerate(NAMES):
        shard = state.shard_for(name)
        letter: Any = {"seed": f"http://{name}.example/", "source": name, "reason": "gone"}
        await shard.redis.xadd(shard.keys.dead, letter, id=f"{number + 1}-1")
    told = [
        json.loads(scrapy("dead", *words, "--json", **shared).stdout)
        for words in (("list",), ("drop", "--source", NAMES[4]), ("retry", "--all"))
    ]
    assert [letter["source"] for letter in told[0]] == sorted(NAMES, key=lambda name: state.shard_for(name).number)
    assert told[1:] == [{"dropped": 1}, {"retried": 11}]
    assert [await shard.redis.xlen(shard.keys.dead) for shard in state.shards] == [0, 0]
