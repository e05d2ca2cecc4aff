"""`scrapy explain`: what would happen to a URL, and why."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import msgpack
import pytest
import pytest_asyncio
from scrapy import Request

from crawlproject import config
from crawlproject.commands.explain import explain, explain_source
from crawlproject.frontier import codec, contents
from crawlproject.frontier.codec import digest, digest_of
from crawlproject.frontier.seeds import new_request, parse_seed
from crawlproject.models import IDENTIFIER, SOURCE
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.calls import NewRequest, Settlement
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.status import outcome_of_url
from crawlproject.storage.blobs import thumbnail_name
from crawlproject.texts import one_line
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy, local_network
from tests.robots_copies import copy_of, keep_copy, set_copy
from tests.sinks.events import gone, image
from tests.state.calls.calls import within

URL = "https://images.museum.org/paintings/a.jpg"
ROBOTS = "https://images.museum.org/robots.txt"


@pytest_asyncio.fixture
async def museum(frontier: Frontier) -> Frontier:
    """Its host, by the catalogue, is that of the source citymuseum."""
    await frontier.catalogue({"citymuseum": 5.0})
    await frontier.scripts.set_rates(frontier.fence, [], {"museum.org": "citymuseum"})
    return frontier


async def keep(frontier: Frontier, kind: str, body: bytes = b"", **more: Any) -> None:
    await keep_copy(frontier.state, ROBOTS, "citymuseum", kind=kind, body=body, **more)


async def explained(frontier: Frontier, *args: str, **environ: Any) -> dict[str, Any]:
    """Return what the command says with these arguments, as JSON."""
    what, options = args[0], dict(zip(args[1::2], args[2::2], strict=True))
    settings = {"REDIS_URL": frontier.state.config.redis_url, **local_network(), **environ}
    state = State(config.load(settings), options.pop("--spider", "images"))
    await state.open()
    try:
        said = (
            await explain(state, what, *map(options.get, ("--source", "--uuid")))
            if "/" in what
            else await explain_source(state, what)
        )
    finally:
        await state.close()
    found: dict[str, Any] = json.loads(json.dumps(said))
    return found


async def test_all_is_said_of_a_url_that_nothing_keeps(museum: Frontier) -> None:
    await keep(museum, "rules", b"User-agent: *\nDisallow: /private/\nAllow: /paintings/\n")
    await museum.settle("citymuseum", ["200", "200", "404"])
    await museum.feed("citymuseum", 10)
    said = await explained(museum, URL)
    assert said.pop("due_s") == pytest.approx(10 / 5, abs=0.7)
    assert said["robots"].pop("for_s") == pytest.approx(3600, abs=30)
    del said["next_slot_s"]
    assert said.pop("looked_back")["image_metadata_updates"] is None
    assert said == {
        "url": URL,
        "identifier": str(uuid.uuid5(uuid.NAMESPACE_URL, URL)),
        "named": None,
        "request": None,
        "source_from": "catalogue",
        "belongs": "the catalogue gives museum.org to citymuseum",
        "seen": False,
        "ended": None,
        "excluded_by": None,
        "robots": {
            "url": ROBOTS,
            "verdict": "allowed",
            "reason": "line 3, Allow: /paintings/",
            "line": 3,
            "rule": "Allow: /paintings/",
            "delay_s": None,
        },
        "obstacles": [],
        "last_50_statuses": {"200": 2, "404": 1},
        **dict.fromkeys(("waiting", "delayed", "in_flight", "successful", "failed", "spilled"), 0),
        **{"source": "citymuseum", "state": "closed", "rate_limit": 5, "effective_rate": 5, "reason": "by size"},
        **{"queued": 10, "eta_s": 2, "hosts": [], "links": {}, "delay_s": 0, "items": 0, "budget": None},
    }


async def test_every_key_is_documented(museum: Frontier) -> None:
    text = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    tables = text.partition("## A URL")[2].partition("## The dashboard")[0]
    named = re.findall(r"^\| `([\w.]+)` \|", tables, flags=re.MULTILINE)
    said = await explained(museum, URL)
    robots = [f"robots.{key}" for key in said.pop("robots")]
    of_pages = [key for key in await explained(museum, URL, "--spider", "pages") if key not in {*said, "robots"}]
    assert sorted(named) == sorted([*said, *robots, *of_pages])


async def test_it_is_said_why_a_url_belongs_to_its_source(scrapy: Scrapy, museum: Frontier) -> None:
    await museum.catalogue({"photos": 50.0})
    claims = {"citymuseum": " museum.net museum.org "}
    await museum.scripts.set_rates(museum.fence, [("citymuseum", 5.0, 5.0)], {}, {}, claims)
    await museum.redis.set("crawl:override_rate:gallery", "3")
    elsewhere = "http://victim.org/a.jpg"
    by_domain = "the catalogue gives victim.org to no source, so its domain is its source"
    row = "the row of citymuseum in the catalogue has museum.org among its hosts"
    any_host = "it is believed on any"
    for url, named, source, source_from, why in (
        (URL, "citymuseum", "citymuseum", "--source", row),
        (elsewhere, "Photos", "photos", "--source", f"its row lists no hosts: {any_host}"),
        (elsewhere, "gallery", "gallery", "--source", f"an operator has given gallery a rate: {any_host}"),
        (elsewhere, "citymuseum", "victim.org", "domain", "the catalogue binds it to museum.net, museum.org"),
        (URL, "made-up", "citymuseum", "catalogue", "neither the catalogue nor scrapy rate names it"),
        (elsewhere, "victim.org", "victim.org", "domain", by_domain),
        (elsewhere, "lender.org", "victim.org", "domain", "it is a domain, whose rate is lent to no other"),
    ):
        said = await explained(museum, url, "--source", named)
        assert (said["named"], said["source"], said["source_from"]) == (named.lower(), source, source_from)
        assert why in said["belongs"]
    said = await explained(museum, "http://img.example.co.uk/a.jpg", CRAWL_UNKNOWN_SOURCES="refuse")
    assert (said["source"], said["reason"], said["due_s"]) == (
        "example.co.uk",
        "minimum: its size is unknown",
        None,
    )
    assert said["obstacles"][0].startswith("the catalogue does not name its source")
    words = scrapy("explain", elsewhere, "--source", "made-up").stdout.splitlines()
    assert words[3].startswith("source:     victim.org (by domain), ")
    assert words[4].startswith("because:    made-up is a name for its event only")
    await museum.scripts.exclude({"made-up": ""}, by="test")
    assert (await explained(museum, elsewhere, "--source", "made-up"))["excluded_by"] == "made-up"


async def test_a_url_is_seen_under_its_identifier(museum: Frontier) -> None:
    spider = ImagesSpider()
    for seed in (URL, json.dumps({"url": "http://museum.org/b c.jpg".replace(" ", "%20"), "uuid": "b-1"})):
        new = new_request(spider.request_for(parse_seed(seed)), spider)
        await within(museum.scripts, high_water=100).enqueue("w", [new])
    said = await explained(museum, URL)
    assert said["seen"] is True
    assert said["obstacles"] == []  # it is queued
    again = 'seen before: a seed for it is a duplicate unless it has "again"'
    assert (await explained(museum, URL, "--uuid", "other"))["seen"] is False
    await museum.redis.delete("crawl:images:queue:0:citymuseum")
    assert (await explained(museum, URL))["obstacles"] == [again]
    assert (await explained(museum, "http://museum.org/b%20c.jpg"))["seen"] is False
    assert (await explained(museum, "http://museum.org/b%20c.jpg", "--uuid", "b-1"))["seen"] is True


async def test_a_request_that_waits_is_found_with_what_is_in_front_of_it(
    scrapy: Scrapy, museum: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    spider, urls = ImagesSpider(), [f"http://museum.org/{number}.jpg" for number in range(1600)]
    for first in range(0, len(urls), 400):  # the window of its source takes 3,000
        seeds = [parse_seed(url) for url in urls[first : first + 400]]
        new = [new_request(spider.request_for(seed), spider) for seed in seeds]
        await within(museum.scripts, high_water=4000).enqueue("w", new)
    [lease] = await museum.lease(1)
    assert (await explained(museum, urls[0]))["request"] == {"state": "in_flight", "in_front": None, "due_s": 0.0}

    said = await explained(museum, urls[21])
    assert (said["request"]["state"], said["request"]["in_front"]) == ("queued", 20)
    assert said["due_s"] == said["request"]["due_s"] == pytest.approx(20 / 5, abs=0.7)
    assert (said["seen"], said["obstacles"]) == (True, [])
    words = scrapy("explain", urls[21]).stdout
    assert "outcome:    none yet" in words
    assert "request:    queued, 20 requests in front of it" in words
    last = await explained(museum, urls[-1])
    assert last["waiting"] > 0
    assert (last["request"]["state"], last["request"]["in_front"]) == ("waiting", 1598)
    assert (await explained(museum, urls[21], "--uuid", "another"))["request"] is None
    metas: list[Any] = [{"redirect_urls": 5}, {"redirect_urls": []}, {IDENTIFIER: {}}]  # which we did not write
    for meta in metas:
        entry = bytes((1, 0, 0)) + msgpack.packb({"url": urls[21] + "?", "meta": meta})
        await museum.redis.lpush("crawl:images:queue:0:citymuseum", entry)
    assert (await explained(museum, urls[21]))["request"]["in_front"] == 23

    entry = await museum.redis.hget("crawl:images:leases:w", lease)
    await museum.scripts.settle("w", [Settlement(lease, "citymuseum", entry, delay=60)])
    later = (await explained(museum, urls[0]))["request"]
    assert (later["state"], later["in_front"]) == ("delayed", None)
    assert later["due_s"] == pytest.approx(60, abs=30)

    monkeypatch.setattr(contents, "MOST_LOOKED_AT", 1000)
    assert (await explained(museum, urls[1500]))["request"] is None


def image_event(url: str, identifier: str) -> str:
    return one_line(image(7, url=url, identifier=identifier, thumbnail=thumbnail_name(identifier)))


async def test_what_has_become_of_a_url_is_told_by_the_last_that_is_known_of_it(
    scrapy: Scrapy, museum: Frontier
) -> None:
    redis, keys = museum.redis, museum.state.keys
    url = URL + '?a="b\\c&d=é'
    spelled = (await explained(museum, url))["url"]
    await redis.xadd(
        keys.link_rot_events, {"event": one_line(gone(7, url=spelled, identifier="i"))}, id="1000000-0"
    )
    await redis.xadd(keys.link_rot_events, {"event": one_line(gone(7, url=spelled + "x"))}, id="3000000-0")
    said = await explained(museum, url)
    nothing = {"thumbnail": None, "status": None, "reason": None, "extra": None}
    rot = {"outcome": "link_rot", "time": "1970-01-01T00:16:40.000+00:00", "status": 410}
    assert said["ended"] == nothing | rot

    await redis.xadd(keys.image_events, {"event": image_event(spelled, "7")}, id="2000000-0")
    await redis.xadd(keys.image_events, {"event": image_event(spelled, "7").replace('"url"', '"old"')})
    ended = (await explained(museum, url))["ended"]
    image = {"outcome": "image", "time": "1970-01-01T00:33:20.000+00:00", "status": 200}
    assert ended == nothing | image | {"thumbnail": thumbnail_name("7")}
    assert (await explained(museum, url, "--uuid", "i"))["ended"]["outcome"] == "link_rot"
    assert (await explained(museum, url, "--uuid", "8"))["ended"] is None

    request = Request(spelled, meta={IDENTIFIER: "7", SOURCE: "citymuseum"})
    letter = {"entry": codec.encode(request, ImagesSpider()), "source": "citymuseum", "reason": "status 403"}
    await redis.xadd(keys.dead, letter, id="4000000-0")
    ended = (await explained(museum, url))["ended"]
    assert (ended["outcome"], ended["reason"]) == ("dead_letter", "status 403")
    text = scrapy("explain", url).stdout
    assert "outcome:    dead letter at 1970-01-01T01:06:40.000+00:00: status 403" in text


async def test_dead_letters_are_searched_as_far_as_their_bytes_allow(
    museum: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_of_url, "MOST_BYTES", 1)
    monkeypatch.setattr(outcome_of_url, "_DEAD_LETTERS_A_PAGE", 1)
    for number, name in enumerate("abc", 1):
        letter = {"seed": json.dumps({"url": URL.replace("a.jpg", f"{name}.jpg")}), "reason": "no"}
        await museum.redis.xadd(museum.state.keys.dead, letter, id=f"{number}000-0")
    assert (await explained(museum, URL.replace("a.jpg", "c.jpg")))["ended"]["outcome"] == "dead_letter"
    said = await explained(museum, URL)
    assert said["ended"] is None
    assert said["looked_back"]["dead"] == "1970-01-01T00:00:03.000+00:00"


async def test_a_page_has_its_next_visit_its_worth_as_a_link_and_the_budget_of_its_source(
    scrapy: Scrapy, museum: Frontier
) -> None:
    keys, redis = Keys("crawl", "pages"), museum.redis
    args = ("https://museum.org/p7", "--spider", "pages")
    said = await explained(museum, *args)
    assert (said["link"], said["revisit"]) == ({"worth": "plain", "reason": None}, None)
    await redis.hset(keys.ledger, said["source"], "2000 12")
    await redis.hset(keys.counts, said["source"], msgpack.packb({"good_pages": 10}))
    due = (await redis.time())[0] + 7200
    digest = digest_of("", "https://museum.org/p7")[:8]
    await redis.hset(keys.revisits_of + said["source"], digest, b"%d000000 14400000000\nthe request" % due)
    said = await explained(museum, *args)
    assert said["budget"] == {"admitted": 2000, "poor": 12, "allowed": (allowed := 1000 + 10 * 4)}
    assert said["revisit"]["interval_s"] == 14_400
    assert 0 < said["revisit"]["due_s"] <= 7200
    text = scrapy("explain", *args).stdout
    assert f"budget:     2000 links admitted of {allowed}, 12 of them poor" in text
    assert "next visit: in " in text
    poor = await explained(museum, "https://museum.org/p?a=1", "--spider", "pages")
    assert poor["link"] == {"worth": "poor", "reason": "query"}


async def test_robots_that_forbids_it_is_quoted(museum: Frontier) -> None:
    assert (await explained(museum, URL))["robots"]["verdict"] == "unknown"
    await keep(museum, "rules", b"User-agent: crawlproject\nCrawl-delay: 10\n\nDisallow: /paint\n", delay=10.0)
    said = await explained(museum, URL)
    robots = said["robots"]
    assert (robots["verdict"], robots["line"], robots["rule"]) == ("disallowed", 4, "Disallow: /paint")
    assert said["obstacles"] == ["robots.txt: line 4, Disallow: /paint"]
    assert (said["due_s"], said["effective_rate"], robots["delay_s"]) == (None, 0.1, 10)
    other = await explained(museum, "https://images.museum.org/b.jpg")
    assert (other["robots"]["verdict"], other["robots"]["line"]) == ("allowed", None)


async def test_robots_that_opts_out_is_quoted(museum: Frontier) -> None:
    await keep(museum, "rules", b"User-agent: *\nContent-Signal: search=yes, ai-train=no\n")
    said = await explained(museum, URL)
    reason = "opt-out: content-signal:ai-train (line 2, Content-Signal: search=yes, ai-train=no)"
    assert (said["robots"]["verdict"], said["robots"]["reason"]) == ("disallowed", reason)
    assert (said["obstacles"], said["due_s"]) == ([f"robots.txt: {reason}"], None)
    assert (await explained(museum, URL, CRAWL_OPT_OUTS="noai"))["robots"]["verdict"] == "allowed"


async def test_robots_that_is_missing_unreachable_or_of_no_account(museum: Frontier) -> None:
    await keep(museum, "unreachable", reason="status 503", retry=90.0)
    said = await explained(museum, URL)
    assert said["robots"]["verdict"] == "unreachable"
    assert "status 503" in said["robots"]["reason"]
    assert said["robots"]["for_s"] == pytest.approx(90, abs=30)
    assert said["due_s"] >= said["robots"]["for_s"]
    assert said["obstacles"] == ["robots.txt: cannot be fetched (status 503)"]

    month = 31 * 86_400 * 1_000_000
    since = (await copy_of(museum.state, ROBOTS))["since"]
    await set_copy(museum.state, ROBOTS, since=since - month)
    said = await explained(museum, URL)
    assert (said["robots"]["verdict"], said["obstacles"]) == ("allowed", [])
    assert said["robots"]["reason"] == "could not be fetched for so long that it no longer counts (status 503)"

    await keep(museum, "none")
    said = await explained(museum, URL)
    assert (said["robots"]["verdict"], said["robots"]["reason"]) == (
        "allowed",
        "there is no robots.txt, or it has no rules for crawlproject",
    )
    assert said["obstacles"] == []

    await keep(museum, "rules", b"User-agent: *\nDisallow: /")
    permission: dict[str, Any] = {"robots": "ignore"}
    await museum.catalogue({"citymuseum": 5.0}, {"citymuseum": json.dumps(permission)})
    assert (await explained(museum, URL))["robots"]["verdict"] == "disallowed"  # permission is for hosts
    permission["hosts"] = ["museum.org"]
    await museum.catalogue({"citymuseum": 5.0}, {"citymuseum": json.dumps(permission)})
    said = await explained(museum, URL)
    assert (said["robots"]["verdict"], said["obstacles"]) == ("ignored", [])


async def test_what_holds_its_source_keeps_it(museum: Frontier) -> None:
    await museum.settle("citymuseum", ["500"] * 6)
    said = await explained(museum, URL)
    assert said["state"] == "open"
    assert [re.sub(r"\d+", "N", obstacle) for obstacle in said["obstacles"]] == ["circuit open for N s more"]
    assert said["due_s"] == pytest.approx(60, abs=30)
    await museum.redis.sadd("crawl:halted", "citymuseum")
    said = await explained(museum, URL)
    assert (said["state"], said["due_s"]) == ("halted", None)
    assert said["obstacles"] == ["halted until scrapy resume citymuseum"]
    await museum.redis.delete("crawl:leader", "crawl:pulse")
    assert (await explained(museum, URL))["obstacles"] == [
        "halted until scrapy resume citymuseum",
        "no worker leads",
    ]


@pytest.mark.parametrize("args", [["ftp://museum.org/a"], ["no url"], [URL, "--source", "two words"]])
def test_what_is_no_url_or_source_is_said_in_a_sentence(scrapy: Scrapy, args: list[str]) -> None:
    done = scrapy("explain", *args)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("scrapy explain: ")


async def test_what_is_said_of_a_url_does_not_contradict_itself(scrapy: Scrapy, museum: Frontier) -> None:
    spider, found = ImagesSpider(), json.dumps({"url": URL, "uuid": "a-1"})
    new = new_request(spider.request_for(parse_seed(found)), spider)
    await within(museum.scripts, high_water=100).enqueue("w", [new])
    queued = scrapy("explain", URL).stdout
    assert "request:    queued" in queued
    assert "identifier:" not in queued  # that of its seed is another one than that by its URL
    assert "identifier: a-1, seen before" in scrapy("explain", URL, "--uuid", "a-1").stdout
    await keep(museum, "rules", b"User-agent: *\nDisallow: /\n")
    assert "due:        never: it becomes a dead letter without a request" in scrapy("explain", URL).stdout

    await museum.redis.delete("crawl:images:queue:0:citymuseum")
    await museum.redis.xadd(museum.state.keys.image_events, {"event": image_event(URL, "a-1")})
    finished = scrapy("explain", URL).stdout
    assert "outcome:    image" in finished
    assert "due:" not in finished and "identifier:" not in finished


async def test_the_spider_that_has_seen_a_url_is_named(scrapy: Scrapy, museum: Frontier) -> None:
    entry, url = b"\x01\x00\x001", "https://museum.org/page"
    pages = museum.state.beside("pages")
    await pages.scripts.heartbeat("p", join=True, timeout=30, max_deliveries=3)
    new = NewRequest(entry, digest(Request(url)), again=False, source="citymuseum")
    await within(pages.scripts, high_water=100).enqueue("p", [new])
    said = f"note: the spider pages has seen it: scrapy explain --spider=pages {url}\n"
    assert scrapy("explain", url).stderr == said
    assert scrapy("explain", url, "--spider", "pages").stderr == ""


async def test_of_another_spider_it_is_said_that_its_responses_leave_no_event(
    scrapy: Scrapy, museum: Frontier
) -> None:
    shop = museum.state.beside("shop")
    for args in (("explain", URL), ("sources",), ("stats",), ("top", "--once")):
        done = scrapy(*args, "--spider", "shop")
        assert (done.returncode, done.stdout) == (2, "")
        assert "--spider shop: this project has no such spider, only images" in done.stderr
        assert "-s SPIDER_MODULES=" in done.stderr
    await shop.scripts.heartbeat("s", join=True, timeout=30, max_deliveries=3)
    new = NewRequest(b"\x01\x00\x001", digest(Request(URL)), again=False, source="citymuseum")
    await within(shop.scripts, high_water=100).enqueue("s", [new])
    said = scrapy("explain", URL, "--spider", "shop").stdout
    assert (
        "outcome:    not known: of the spider shop only dead letters are kept, neither responses nor link rot"
        in said
    )
