"""`scrapy exclude`, `include`, `excluded` and `purge`."""

from __future__ import annotations

import getpass
import json
import socket

from crawlproject.state.source_counts import counts_in
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy

WHO = f"{getpass.getuser()}@{socket.gethostname()}"


async def test_an_excluded_source_loses_its_work_until_it_is_included(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0, "flickr": 200.0})
    await frontier.feed("museum", 3)
    done = scrapy("exclude", "MUSEUM", "Gone.Example", "--reason", "asked by mail")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "museum is excluded; 3 queued requests were dropped",
        "gone.example is excluded; 0 queued requests were dropped",
    ]
    assert await frontier.redis.smembers("crawl:excluded") == {b"museum", b"gone.example"}
    await frontier.feed("museum", 1)
    assert await frontier.lease(9) == []
    assert counts_in(await frontier.redis.hget("crawl:images:counts", "museum"))["excluded"] == 4

    listed = json.loads(scrapy("excluded", "--json").stdout)
    by = f"operator, scrapy exclude, {WHO}"
    assert [one.pop("time")[:2] for one in listed] == ["20", "20"]
    assert listed == [
        {"name": name, "by": by, "reason": "asked by mail", "in_file": False}
        for name in ("gone.example", "museum")
    ]
    lines = scrapy("excluded").stdout.splitlines()
    assert lines[0].startswith("gone.example  20")
    assert lines[0].endswith(f", {by}: asked by mail")
    assert lines[2:] == ["2 excluded"]

    done = scrapy("include", "museum", "flickr")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "museum is included again\nflickr was not excluded\n"
    assert [(one["event"], one["source"], one["by"]) for one in await frontier.audit()] == [
        ("crawl_excluded", "museum", by),
        ("crawl_excluded", "gone.example", by),
        ("crawl_included", "museum", f"operator, scrapy include, {WHO}"),
    ]
    await frontier.feed("museum", 2)
    assert len(await frontier.lease(9)) == 2


async def test_a_source_all_of_whose_hosts_are_excluded_is_shown_as_excluded(
    scrapy: Scrapy, frontier: Frontier
) -> None:
    claims = {"museum": " a.example b.example ", "flickr": " a.example c.example "}
    rows = [("museum", 5.0, 5.0), ("flickr", 5.0, 5.0)]
    await frontier.scripts.set_rates(frontier.fence, rows, {"a.example": "museum"}, {}, claims)
    await frontier.scripts.exclude({"a.example": "", "b.example": ""}, by="test")
    rows = json.loads(scrapy("sources", "--json").stdout)
    shown = {row["source"]: (row["state"], row["reason"]) for row in rows}
    assert shown["museum"] == ("excluded", "by size; excluded: see scrapy excluded")
    assert shown["flickr"] == ("closed", "by size")


async def test_what_the_file_names_is_not_included_by_a_command(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.scripts.exclude({"museum": "the list"}, fence=frontier.fence)
    done = scrapy("include", "museum")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "museum is still excluded: CRAWL_EXCLUDE names it, take its line out of that file\n"
    assert await frontier.redis.smembers("crawl:excluded") == {b"museum"}
    done = scrapy("include", "museum", "--json")
    assert json.loads(done.stdout) == {"included": [], "not_excluded": [], "file": ["museum"]}
    assert scrapy("excluded").stdout.splitlines()[0] == "museum  CRAWL_EXCLUDE: the list"


async def test_names_are_checked_and_a_likely_typo_is_remarked(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0})
    await frontier.scripts.set_rates(frontier.fence, [], {"a.example": "museum"})
    done = scrapy("exclude", "cdn.a.example")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "cdn.a.example is excluded; 0 queued requests were dropped\n",
        "note: workers drop requests to cdn.a.example, which wait under museum, when their turn comes\n",
    )
    done = scrapy("exclude", "bücher.example", "musuem", "--json")
    assert json.loads(done.stdout) == {"excluded": {"xn--bcher-kva.example": 0, "bücher.example": 0, "musuem": 0}}
    assert done.stderr == "note: there is no source musuem; a name that appears only in seeds is not a source\n"
    assert scrapy("exclude", "nosuch.example").stderr.startswith("note: there is no source nosuch.example;")
    done = scrapy("exclude", ".a.example")
    assert (done.returncode, done.stdout) == (0, ".a.example is excluded; 0 queued requests were dropped\n")
    assert done.stderr.splitlines() == [
        "note: there is no source .a.example; a name that appears only in seeds is not a source",
        "note: .a.example is not a domain: only the source of that name is excluded",
    ]


async def test_a_purge_says_how_many_and_wants_yes(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 200.0, "flickr": 200.0})
    await frontier.feed("museum", 5)
    await frontier.feed("flickr", 1)
    done = scrapy("purge", "museum")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "5 requests of museum wait; to drop them: scrapy purge --yes museum\n"
    assert json.loads(scrapy("purge", "museum", "--json").stdout) == {
        "source": "museum",
        "waiting": 5,
        "purged": 0,
    }
    of_pages = scrapy("purge", "museum", "--spider", "pages").stdout
    assert of_pages == "0 requests of museum wait; to drop them: scrapy purge --yes --spider=pages museum\n"
    assert await frontier.redis.hget("crawl:images:counters", "outstanding") == b"6"
    assert scrapy("purge", "museum", "--yes").stdout == "5 requests of museum were dropped\n"
    assert await frontier.redis.hget("crawl:images:counters", "outstanding") == b"1"
    assert json.loads(scrapy("purge", "museum", "--yes", "--json").stdout) == {
        "source": "museum",
        "waiting": 0,
        "purged": 0,
    }
    done = scrapy("purge", "musuem", "--yes")
    assert (done.returncode, done.stdout) == (0, "0 requests of musuem were dropped\n")
    assert done.stderr == "note: there is no source musuem; a name that appears only in seeds is not a source\n"
    totals = json.loads(scrapy("stats").stdout)
    assert (totals["purged"], totals["sources"]["museum"]["purged"], totals["excluded"]) == (5, 5, 0)
    assert (await frontier.audit())[0]["by"] == f"operator, scrapy purge, {WHO}"
