"""`scrapy rate`: an operator's rate in place of the computed one."""

from __future__ import annotations

import json
import shlex

import pytest
import redis

from crawlproject.state.shards import shard_namespace, shard_of
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy
from tests.robots_copies import keep_copy

KEY = "crawl:override_rate:museum"


async def test_sets_and_deletes_the_override(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0})
    done = scrapy("rate", "Museum", "0.25")
    assert (done.returncode, done.stdout, done.stderr) == (0, "museum: 0.25 requests a second\n", "")
    assert await frontier.redis.get(KEY) == b"0.25"
    done = scrapy("rate", "museum", "0", "--json")
    said = {"source": "museum", "override": 0, "over_robots": False, "crawl_delay": None}
    assert (json.loads(done.stdout), done.stderr) == (said, "")
    assert await frontier.redis.get(KEY) == b"0"
    done = scrapy("rate", "museum", "auto", "--json")
    assert (json.loads(done.stdout), done.stderr) == (said | {"override": None}, "")
    assert await frontier.redis.get(KEY) is None
    assert scrapy("rate", "museum", "auto").stdout == "museum: by size again\n"


async def test_it_is_said_that_the_rate_of_a_domain_is_lent_to_no_other(
    scrapy: Scrapy, frontier: Frontier
) -> None:
    await frontier.catalogue({"museum": 5.0, "row.museum": 5.0})
    await frontier.feed("cdn.museum", 1)
    note = (
        "note: cdn.museum is not in the catalogue: this rate applies to its URLs only, "
        "not to seeds with this source and a URL elsewhere\n"
    )
    assert scrapy("rate", "cdn.museum", "5").stderr == note
    assert json.loads(scrapy("rate", "cdn.museum", "5", "--json").stdout)["override"] == 5
    assert scrapy("rate", "cdn.museum", "auto").stderr == ""
    assert scrapy("rate", "row.museum", "5").stderr == ""


async def test_a_crawl_delay_binds_and_is_named_unless_it_is_lifted(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0})
    for host, delay in (("a.museum", 2.0), ("b.museum", 8.0)):
        await keep_copy(frontier.state, f"http://{host}/robots.txt", "museum", delay=delay)
    await frontier.feed("museum", 9)
    lift = "scrapy rate --over-robots museum {}"
    binds = f"note: the Crawl-delay of 8 s in its robots.txt binds; to lift it: {lift}\n"
    done = scrapy("rate", "museum", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, "museum: 10 requests a second\n", binds.format(10))
    assert scrapy("rate", "museum", "0.1").stderr == ""  # slower still
    assert scrapy("rate", "museum", "auto").stderr == binds.format("RPS")

    done = scrapy("rate", "museum", "10", "--over-robots")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "museum: 10 requests a second, over its robots.txt\n"
    assert await frontier.redis.get(KEY) == b"10 over-robots"
    await frontier.lease(9)  # puts it in force, though the leader has not looked
    [row] = json.loads(scrapy("sources", "--json", "museum").stdout)
    assert (row["rate_limit"], row["effective_rate"]) == (10, 10)
    assert row["reason"] == "by override, over a robots.txt that asks for 8 s between requests"
    (_, fields) = (await frontier.redis.xrevrange("crawl:audit", count=1))[0]
    told = json.loads(fields[b"event"])
    assert (told["event"], told["type"], told["rate"], told["over_robots"]) == (
        "rate_overridden",
        "override",
        10,
        True,
    )
    assert told["msg"] == "museum: 10 requests a second by override, over robots.txt"
    assert told["by"].startswith("operator, scrapy rate, ")

    done = scrapy("rate", "museum", "10", "--json")
    said = {"source": "museum", "override": 10, "over_robots": False, "crawl_delay": 8}
    assert (json.loads(done.stdout), done.stderr) == (said, binds.format(10))
    assert await frontier.redis.get(KEY) == b"10"
    done = scrapy("rate", "museum", "10", "--over-robots", "--json")
    assert json.loads(done.stdout) == said | {"over_robots": True}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        *(((value,), f"{value!r} is not a rate") for value in ("fast", "-1", "inf", "٥")),
        (("auto", "--over-robots"), "--over-robots expects RPS"),  # by size a Crawl-delay is not lifted
    ],
)
async def test_nonsense_is_named_and_changes_nothing(
    scrapy: Scrapy, frontier: Frontier, args: tuple[str, ...], words: str
) -> None:
    await frontier.redis.set(KEY, "4")
    done = scrapy("rate", "museum", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert await frontier.redis.get(KEY) == b"4"


def test_the_order_for_redis_cli_has_the_key_of_the_shard(scrapy: Scrapy, redis_url: str) -> None:
    done = scrapy("rate", "museum", "0.5", "--key")
    assert done.stdout == "redis-cli set crawl:override_rate:museum 0.5\n"
    done = scrapy("rate", "museum", "9", "--over-robots", "--key", "--json", CRAWL_SHARDS="4")
    order = shlex.split(json.loads(done.stdout)["order"])
    assert order == ["redis-cli", "set", "{crawl:1.4}:override_rate:museum", "9 over-robots"]
    done = scrapy("rate", "museum", "auto", "--key", REDIS_URL="redis+cluster://127.0.0.1:1")
    assert done.stdout == "redis-cli -c del '{crawl}:override_rate:museum'\n"
    two = "redis://:secret@one/0 redis://:secret@two/0"
    done = scrapy("halt", "museum", "photos", "--key", REDIS_URL=two, CRAWL_SHARDS="2")
    assert [shlex.split(line)[1:] for line in done.stdout.splitlines()] == [
        ["sadd", f"{shard_namespace('crawl', shard_of(name, 2), 2)}:halted", name] for name in ("museum", "photos")
    ]
    assert "note: museum is in shard 1, at two/0" in done.stderr
    assert "secret" not in done.stderr
    with redis.Redis.from_url(redis_url) as client:
        assert client.keys() == []
