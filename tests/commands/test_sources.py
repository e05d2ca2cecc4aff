"""`scrapy sources`: the status of each source."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from crawlproject.config import CircuitRules
from crawlproject.sources.rates import rate_for
from crawlproject.state.calls import Settlement
from crawlproject.state.client import State
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy
from tests.following import running
from tests.robots_copies import keep_copy
from tests.waiting import PATIENCE_S

Rows = dict[str, dict[str, Any]]


DIGEST = "a" * 40  # of an extent


def listed(scrapy: Scrapy, *args: str) -> Rows:
    done = scrapy("sources", "--json", *args)
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return {row["source"]: row for row in rows}


async def test_every_source_of_the_catalogue_or_a_seed_is_a_row(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": rate_for(12_000_000), "idle": rate_for(100_000_000)})
    await frontier.feed("museum", 8)
    await frontier.feed("nobody.org", 2)
    image, rotten, dead, later, *_ = [lease for lease in await frontier.lease(99) if lease.endswith(":museum")]
    await frontier.scripts.settle(
        "w",
        [
            Settlement(image, "museum", event=("image_metadata_updates", "{}"), counts={"thumbnails": 1}),
            Settlement(rotten, "museum", event=("link_rot", "{}"), counts={"link_rot": 1}),
            Settlement(dead, "museum", b"\x01\x00\x00x", dead="status 403", counts={"failed": 1}),
            Settlement(later, "museum", b"\x01\x00\x00y", delay=60),
        ],
    )
    await frontier.scripts.leave("w")
    await frontier.start()
    [leased] = await frontier.lease(1)
    assert leased.endswith(":museum")

    rows = listed(scrapy)
    assert list(rows) == ["idle", "museum", "nobody.org"]
    assert 0 <= rows["museum"].pop("next_slot_s") <= 10 / rate_for(12_000_000)
    work = {"queued": 3, "waiting": 0, "delayed": 1, "in_flight": 1, "successful": 2, "failed": 1, "spilled": 0}
    assert rows["museum"] == work | {
        "source": "museum",
        "rate_limit": (limit := rate_for(12_000_000)),
        "effective_rate": limit,
        "reason": "by size",
        "state": "closed",
        "eta_s": 5 / limit,
        **{"hosts": [], "links": {}, "delay_s": 0, "items": 0, "budget": None},
    }
    assert (rows["idle"]["rate_limit"], rows["idle"]["eta_s"]) == (rate_for(100_000_000), 0)
    nobody = rows["nobody.org"]
    assert (nobody["rate_limit"], nobody["reason"]) == (0.2, "minimum: its size is unknown")
    assert (nobody["queued"], nobody["eta_s"]) == (2, 10)
    outstanding = sum(row["queued"] + row["delayed"] + row["in_flight"] for row in rows.values())
    assert outstanding == int(await frontier.redis.hget("crawl:images:counters", "outstanding"))
    of_pages = listed(scrapy, "--spider", "pages")["museum"]
    assert (of_pages["queued"], of_pages["in_flight"]) == (0, 0)


async def test_the_time_left_is_that_of_the_workers_settings(scrapy: Scrapy, frontier: Frontier) -> None:
    worker = State(replace(frontier.state.config, pages_delay=2.0), "pages")
    await worker.open()
    try:
        await frontier.redis.hset(worker.keys.rates, "museum.org", "0.2")
        await frontier.redis.rpush(f"{worker.keys.queue_of}1:museum.org", *[b"\x01\x00\x01x"] * 3)
        assert listed(scrapy, "--spider", "pages")["museum.org"]["eta_s"] == 3 * 70  # of this shell: nobody works
        await worker.scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)
        row = listed(scrapy, "--spider", "pages")["museum.org"]
        assert (row["eta_s"], row["delay_s"]) == (3 * 5, 2)
    finally:
        await worker.close()


async def test_what_takes_long_at_an_unknown_size_is_told_below_the_table(
    scrapy: Scrapy, frontier: Frontier
) -> None:
    await frontier.catalogue({"museum": 200.0})
    await frontier.feed("photos.example", 130)
    assert "its 130 requests take 0:10:50; if it is yours" in scrapy("sources").stdout.splitlines()[-1]
    assert "its 130 requests take" in scrapy("top", "--interval", "0.5").stdout
    assert "scrapy rate" not in scrapy("sources", "museum").stdout


async def test_of_pages_the_table_has_spilled_requests_links_and_budget(
    scrapy: Scrapy, frontier: Frontier
) -> None:
    state = frontier.state.beside("pages")
    keys, redis = state.keys, frontier.redis
    await redis.hset(keys.rates, "museum.org", "0.2")
    await redis.rpush(f"{keys.queue_of}1:museum.org", *[b"\x01\x00\x01x"] * 3)
    await redis.rpush(f"{keys.overflow_of}1:museum.org", *[b"\x01\x00\x01x"] * 5)
    await redis.rpush(f"{keys.extents_of}0:museum.org", f"packs/1-ab:0:100:{DIGEST}:64")
    await redis.hset(keys.counters, mapping={"overflow": 69, "spilled": 64})
    await redis.hset(keys.ledger, "museum.org", "240 12")
    counts = {"good_pages": 80, "links_admitted": 250, "links_known": 3000, "links_refused": 61}
    await redis.hset(keys.counts, "museum.org", msgpack.packb(counts))
    row = listed(scrapy, "--spider", "pages")["museum.org"]
    assert (row["queued"], row["waiting"], row["spilled"]) == (3, 69, 64)
    assert row["links"] == {"admitted": 250, "known": 3000, "refused": 61}
    assert row["budget"] == {"admitted": 240, "poor": 12, "allowed": 1320}
    assert (
        listed(scrapy, "--spider", "pages", "-s", "CRAWL_PAGES_BUDGET_MAX=0")["museum.org"]["budget"]["allowed"]
        is None
    )
    head, line, *_ = scrapy("sources", "--spider", "pages").stdout.splitlines()
    reason = head.index(" reason")
    ends = range(len("museum.org"), reason, 11)
    cells = {head[end : end + 11].strip(): line[end : end + 11].strip() for end in ends}
    named = ("queued", "waiting", "spilled", "links", "budget")
    assert [cells[name] for name in named] == ["3", "69", "64", "250", "240/1320"]
    assert line.endswith("; links: 250 admitted, 3000 known, 61 refused")
    assert "spilled" not in scrapy("sources").stdout


async def test_the_reason_says_why_a_source_has_its_rate(scrapy: Scrapy, frontier: Frontier) -> None:
    troubled = ["slowed", "patient", "held", "open", "probed", "halted", "quick"]
    await frontier.catalogue(dict.fromkeys([*troubled, "stopped"], 200.0))
    await frontier.settle("slowed", ["429"], slows=True)
    await keep_copy(frontier.state, "http://patient/robots.txt", "patient", delay=10)
    await frontier.settle("held", ["503"], slows=True, hold=34.0)
    await frontier.settle("open", ["500"] * 6)
    await frontier.settle("probed", ["500"] * 6, CircuitRules(open=0.01, open_max=0.01))
    await frontier.redis.sadd("crawl:halted", "halted")
    await frontier.redis.set("crawl:override_rate:quick", "5")
    await frontier.scripts.set_rates(frontier.fence, [("quick", 5.0, 200.0), ("stopped", 0.0, 200.0)], {})
    await frontier.redis.set("crawl:override_rate:stopped", "0")
    await frontier.redis.set("crawl:override_rate:slowed", "plenty")
    await asyncio.sleep(0.02)
    for source in (*troubled, "stopped"):
        await frontier.feed(source, 10)
    await frontier.lease(3 * len(troubled))  # lets the probes out

    rows = listed(scrapy)
    assert {source: rows[source]["state"] for source in troubled} == {
        "slowed": "closed",
        "patient": "closed",
        "held": "closed",
        "open": "open",
        "probed": "half_open",
        "halted": "halted",
        "quick": "closed",
    }
    reasons = {source: row["reason"] for source, row in rows.items()}
    assert reasons["slowed"] == "by size (override 'plenty' is not a rate), slowed to 50 % by status 429"
    assert reasons["patient"] == "robots.txt asks for 10 s between requests"
    assert reasons["probed"] == "by size; circuit half open: only a few probes go out"
    assert reasons["halted"] == "by size; halted until scrapy resume halted"
    assert reasons["quick"] == "by override"
    assert reasons["stopped"] == "by override; nothing goes out at a rate of 0"
    rates = {source: row["effective_rate"] for source, row in rows.items()}
    assert rates["slowed"] == 100
    assert rates["patient"] == pytest.approx(0.1)
    assert rates["quick"] == 5

    assert "slowed to 50 % by status 503; held for " in reasons["held"]
    assert reasons["held"].endswith(" s (Retry-After)")
    assert rows["held"]["eta_s"] == pytest.approx(34 + 10 / 100, abs=20)
    assert reasons["open"].startswith("by size; circuit open for ")
    assert rows["open"]["eta_s"] == pytest.approx(60 + 10 / 200, abs=20)
    assert rows["quick"]["eta_s"] == 2
    assert rows["patient"]["eta_s"] == pytest.approx(100)
    assert rows["halted"]["eta_s"] is None
    assert rows["stopped"]["eta_s"] is None


async def test_a_rate_the_leader_has_not_set_yet_is_said(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0})
    await frontier.redis.set("crawl:override_rate:museum", "7.5")
    row = listed(scrapy)["museum"]
    assert (row["rate_limit"], row["reason"]) == (5, "by override, 7.5 as soon as the leader has set it")


async def test_more_sources_than_a_call_takes(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({f"s{number:04}": 0.2 + number for number in range(1100)})
    await frontier.feed("s1099", 7)
    rows = listed(scrapy)
    assert [row["rate_limit"] for row in rows.values()] == [0.2 + number for number in range(1100)]
    assert rows["s1099"]["queued"] == 7


async def test_a_reader_that_has_enough_ends_it_quietly(environment: dict[str, str], frontier: Frontier) -> None:
    await frontier.catalogue({f"s{number:04}": 5.0 for number in range(1100)})
    with running(environment, "sources") as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.readline()
        done.stdout.close()
        assert (done.stderr.read(), done.wait(PATIENCE_S)) == ("", 141)


async def test_people_get_a_table(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0, "flickr": 200.0})
    await frontier.feed("museum", 600)
    await frontier.redis.sadd("crawl:halted", "flickr")
    await frontier.feed("flickr", 1)
    head, *rows, last = scrapy("sources").stdout.splitlines()
    assert " ".join(head.split()) == (
        "source limit rps now rps queued waiting delayed in flight successful failed state eta reason"
    )
    assert [" ".join(row.split()) for row in rows] == [
        "flickr 200 200 1 0 0 0 0 0 halted never by size; halted until scrapy resume flickr",
        "museum 5 5 600 0 0 0 0 0 closed 0:02:00 by size",
    ]
    assert last == "2 sources"
    await frontier.redis.set("crawl:paused", "events unread")
    assert scrapy("sources").stdout.splitlines()[-1] == "nothing goes out: events unread"
