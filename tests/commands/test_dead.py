"""`scrapy dead`: what failed for good, its second life, and its end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from scrapy import Request

from crawlproject.frontier import codec
from crawlproject.models import IDENTIFIER, RETRIES, SOURCE
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.calls import Rejected, Settlement
from crawlproject.state.client import State
from tests.conftest import Scrapy
from tests.state.calls import calls
from tests.state.calls.calls import within

SPIDER = ImagesSpider()


async def add_dead_letters(state: State, *letters: tuple[str, str, str]) -> None:
    """Take requests (identifier, source, reason) through the frontier to their end."""
    await calls.join(state)
    await calls.rule(state, *((source, 200.0) for _, source, _ in letters))
    for identifier, source, reason in letters:
        url = f"https://{source}.org/{identifier}"
        request = Request(url, meta={IDENTIFIER: identifier, SOURCE: source, RETRIES: 1})
        entry = codec.encode(request, SPIDER, deliveries=2)
        await calls.put(state, [entry], source)
        [grant] = (await calls.lease(state, 1, horizon=60.0)).grants
        ended = await state.scripts.settle("w", [Settlement(grant.id, source, entry, dead=reason)])
        assert ended.settled == [True]


async def reject(state: State, *seeds: tuple[bytes, str]) -> None:
    """Have seeds (line, reason) refused as those that cannot be understood."""
    redis = state.redis
    await calls.join(state)
    await redis.lpush(state.keys.seeds, *(line for line, _ in seeds))
    taken = await state.scripts.take_seeds("w", len(seeds))
    assert taken == [line for line, _ in seeds]
    items = [Rejected(reason) for _, reason in seeds]
    assert await state.scripts.lead("leader", ready=True) is not None
    reply = await within(state.scripts, high_water=1000).enqueue("w", items, seeds=taken)
    assert reply is not None
    assert reply.dead == len(seeds)


def listed(scrapy: Scrapy, *args: str) -> list[dict[str, Any]]:
    done = scrapy("dead", "list", "--json", *args)
    assert (done.returncode, done.stderr) == (0, "")
    letters: list[dict[str, Any]] = json.loads(done.stdout)
    return letters


async def test_dead_letters_are_listed_with_all_that_the_contract_names(scrapy: Scrapy, state: State) -> None:
    await add_dead_letters(
        state, ("1", "museum", "status 403"), ("2", "flickr", "timeout: 30 s (after 2 attempts)")
    )
    seed = b'{"url": "http://a/", "uuid": "3", "source": "nobody"}'
    await reject(state, (b"caf\xe9", "not UTF-8"), (seed, "unknown source: nobody"))
    # what somebody else has put there spoils its own line only
    foreign: dict[Any, Any] = {"entry": b"\x01\x00\x00\x93", "source": "x", "reason": "?", "deliveries": 0}
    await state.redis.xadd(state.keys.dead, foreign)

    letters = listed(scrapy)
    times = [datetime.fromisoformat(letter.pop("time")) for letter in letters]
    assert times == sorted(times)
    assert all(datetime.now(UTC) - time < timedelta(minutes=1) for time in times)
    nothing = dict.fromkeys(("identifier", "url", "source", "image", "extra", "seed")) | {"deliveries": 0}
    timed_out = {"source": "flickr", "reason": "timeout: 30 s (after 2 attempts)", "deliveries": 2}
    assert letters == [
        nothing | letter
        for letter in (
            {"identifier": "1", "url": "https://museum.org/1", "source": "museum", "reason": "status 403",
             "deliveries": 2},
            timed_out | {"identifier": "2", "url": "https://flickr.org/2"},
            {"reason": "not UTF-8", "seed": "caf\ufffd"},
            {"identifier": "3", "url": "http://a/", "reason": "unknown source: nobody", "seed": seed.decode()},
            {"source": "x", "reason": "?"},
        )
    ]  # fmt: skip
    assert [letter["identifier"] for letter in listed(scrapy, "--source", "FLICKR")] == ["2"]
    assert [letter["identifier"] for letter in listed(scrapy, "--reason", "stat")] == ["1"]
    assert listed(scrapy, "--source", "museum", "--reason", "timeout") == []
    assert listed(scrapy, "--spider", "pages") == []

    done = scrapy("dead", "list")
    lines = done.stdout.splitlines()
    assert lines[-1] == "5 dead letters"
    assert "museum  status 403  'https://museum.org/1'" in lines[0]


async def test_a_retry_moves_what_is_selected_back_into_the_crawl(scrapy: Scrapy, state: State) -> None:
    await add_dead_letters(
        state, ("1", "museum", "status 403"), ("2", "flickr", "timeout"), ("3", "flickr", "status 403")
    )
    await reject(state, (b"http://a/", "unknown source: a"))

    done = scrapy("dead", "retry", "--source", "flickr", "--reason", "timeout")
    assert (done.returncode, done.stdout) == (0, "1 dead letter is back in the crawl\n")
    assert [letter["reason"] for letter in listed(scrapy)] == ["status 403", "status 403", "unknown source: a"]

    assert json.loads(scrapy("dead", "retry", "--all", "--json").stdout) == {"retried": 3}
    assert json.loads(scrapy("dead", "retry", "--all", "--json").stdout) == {"retried": 0}

    redis, keys = state.redis, state.keys
    assert await redis.hget(keys.counters, "outstanding") == b"3"
    assert await redis.lrange(keys.seeds, 0, -1) == [b"http://a/"]
    queues = [await redis.lrange(key, 0, -1) async for key in redis.scan_iter(f"{keys.queue_of}*")]
    requests = [codec.decode(entry, SPIDER) for entries in queues for entry in entries]
    assert sorted(request.meta[IDENTIFIER] for request in requests) == ["1", "2", "3"]
    assert all(RETRIES not in request.meta for request in requests)
    assert {entry[1] for entries in queues for entry in entries} == {0}  # deliveries


async def test_more_than_one_page(scrapy: Scrapy, state: State) -> None:
    for first in range(0, 1100, 100):
        await reject(state, *((b"line %d" % number, "no url") for number in range(first, first + 100)))
    assert [letter["seed"] for letter in listed(scrapy)] == [f"line {number}" for number in range(1100)]
    assert json.loads(scrapy("dead", "retry", "--all", "--json").stdout) == {"retried": 1100}
    seeds = await state.redis.lrange(state.keys.seeds, 0, -1)
    assert list(reversed(seeds)) == [b"line %d" % number for number in range(1100)]
    assert await state.redis.xlen(state.keys.dead) == 0


async def test_a_drop_deletes_what_is_selected_and_nothing_else(scrapy: Scrapy, state: State) -> None:
    await add_dead_letters(
        state, ("1", "museum", "status 403"), ("2", "flickr", "timeout"), ("3", "flickr", "status 403")
    )
    await reject(state, *((b"line %d" % number, "no url") for number in range(600)))

    done = scrapy("dead", "drop", "--source", "FLICKR", "--reason", "403")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 dead letter deleted\n", "")
    assert [letter["identifier"] for letter in listed(scrapy, "--reason", "t")][:2] == ["1", "2"]
    assert json.loads(scrapy("dead", "drop", "--reason", "no url", "--json").stdout) == {"dropped": 600}
    assert [letter["identifier"] for letter in listed(scrapy)] == ["1", "2"]
    assert await state.redis.hget(state.keys.counters, "outstanding") == b"0"
    assert await state.redis.llen(state.keys.seeds) == 0


async def test_a_typo_of_a_source_is_remarked(scrapy: Scrapy, state: State) -> None:
    await add_dead_letters(state, ("1", "museum", "status 403"))
    done = scrapy("dead", "retry", "--source", "musuem")
    assert done.stdout == "0 dead letters are back in the crawl\n"
    assert done.stderr == "note: there is no source musuem; a name that appears only in seeds is not a source\n"
    assert scrapy("dead", "retry", "--source", "museum", "--reason", "404").stderr == ""


@pytest.mark.parametrize(("order", "done"), [("retry", "retried"), ("drop", "dropped")])
async def test_an_order_for_all_must_say_so(scrapy: Scrapy, state: State, order: str, done: str) -> None:
    await add_dead_letters(state, ("1", "museum", "status 403"), ("2", "flickr", "timeout"))
    refused = scrapy("dead", order, "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "select by --source or --reason, or give --all" in refused.stderr
    assert len(listed(scrapy)) == 2
    assert json.loads(scrapy("dead", order, "--all", "--json").stdout) == {done: 2}
    assert listed(scrapy) == []
