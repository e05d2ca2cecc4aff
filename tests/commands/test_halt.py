"""`scrapy halt` and `scrapy resume`."""

from __future__ import annotations

import getpass
import json
import socket

from crawlproject.state.client import State
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy
from tests.robots_copies import keep_copy


async def test_before_a_worker_has_read_the_catalogue_orders_and_explanations_say_so(
    scrapy: Scrapy, state: State
) -> None:
    unread = "note: no worker has read CRAWL_SOURCES yet\n"
    done = scrapy("halt", "museum", CRAWL_SOURCES="sources.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{unread}scrapy halt: the crawl knows no source museum, so nothing has changed")
    done = scrapy("explain", "http://127.0.0.1:1/a.jpg", "--json", CRAWL_SOURCES="sources.json")
    assert done.stderr == unread
    said = json.loads(done.stdout)
    assert (said["due_s"], said["obstacles"][-1]) == (None, "no worker is running: scrapy crawl images")
    done = scrapy("explain", "http://127.0.0.1:1/a.jpg")
    assert done.stderr == ""
    assert "never, unless an obstacle above is removed" in done.stdout


async def test_a_halted_source_grants_nothing_until_it_is_resumed(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0, "flickr": 200.0})
    await frontier.feed("museum", 3)
    done = scrapy("halt", "MUSEUM", "flickr")
    assert (done.returncode, done.stdout, done.stderr) == (0, "museum is halted\nflickr is halted\n", "")
    assert await frontier.redis.smembers("crawl:halted") == {b"museum", b"flickr"}
    assert await frontier.lease(9) == []
    await frontier.scripts.watch(frontier.fence)
    assert sorted((one["event"], one["source"]) for one in await frontier.audit()) == [
        ("crawl_halted", "flickr"),
        ("crawl_halted", "museum"),
    ]

    done = scrapy("resume", "museum")
    assert (done.returncode, done.stdout, done.stderr) == (0, "museum has been resumed\n", "")
    assert await frontier.redis.smembers("crawl:halted") == {b"flickr"}
    await frontier.scripts.watch(frontier.fence)
    last = (await frontier.audit())[-1]
    assert (last["event"], last["source"]) == ("crawl_resumed", "museum")
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    assert {one["by"] for one in await frontier.audit()} == {
        f"operator, scrapy halt, {who}",
        f"operator, scrapy resume, {who}",
    }
    assert len(await frontier.lease(9)) == 3


async def test_a_resumed_source_has_its_robots_txt_fetched_again(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0})
    asks, silent = "http://asks.example/robots.txt", "http://silent.example/robots.txt"

    async def fetches(origin: str) -> bool:
        return bool((await frontier.scripts.look_robots("w", origin, "museum")).fetch)

    for origin, delay in ((asks, 60.0), (silent, 0.0)):
        await keep_copy(frontier.state, origin, "museum", delay=delay)
    assert scrapy("resume", "museum").returncode == 0
    assert [await fetches(asks), await fetches(silent)] == [True, False]
    await keep_copy(frontier.state, asks, "museum", delay=0)
    [standing] = await frontier.scripts.inspect(["museum"])
    assert standing.robots_delay is None


async def test_a_name_that_nobody_knows_is_refused_unless_it_is_new(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0})
    for order in (("halt", "museum", "musuem"), ("rate", "musuem", "5"), ("resume", "musuem")):
        done = scrapy(*order)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"scrapy {order[0]}: the crawl knows no source musuem, so nothing has ch")
        assert ("--new" in done.stderr) == (order[0] != "resume")
    assert {key async for key in frontier.redis.scan_iter("*musuem*")} == set()
    assert await frontier.redis.smembers("crawl:halted") == set()

    assert scrapy("halt", "--new", "musuem").stdout == "musuem is halted\n"
    assert scrapy("rate", "--new", "gallery", "5").stdout == "gallery: 5 requests a second\n"
    assert scrapy("resume", "musuem").stdout == "musuem has been resumed\n"
    assert scrapy("rate", "gallery", "auto").stdout == "gallery: by size again\n"
    assert (scrapy("resume", "musuem").returncode, scrapy("rate", "gallery", "4").returncode) == (1, 1)


async def test_of_an_excluded_source_it_is_said_that_an_order_lets_nothing_out(
    scrapy: Scrapy, frontier: Frontier
) -> None:
    await frontier.catalogue({"museum": 5.0})
    await frontier.scripts.exclude({"museum": ""}, by="test")
    for order in (("resume", "museum"), ("rate", "museum", "3")):
        done = scrapy(*order)
        assert done.returncode == 0
        assert done.stderr == "note: nothing goes out, as museum is excluded: scrapy include museum\n"


async def test_of_a_host_of_the_catalogue_its_source_is_named(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0})
    await frontier.scripts.set_rates(frontier.fence, [], {"museum.example": "museum"})
    assert "museum.example belongs to museum" in scrapy("halt", "museum.example").stderr
