"""A robots.txt with tens of thousands of wildcards: judged in a thread, once for each URL, or not at all."""

from __future__ import annotations

import itertools
import string
import time

import pytest
from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.politeness.robots_txt import MAX_BYTES, Rules
from crawlproject.robots import verdicts as module
from crawlproject.robots.verdicts import Verdicts, refusal_for_work
from tests.robots_copies import keep_copy

SITE = "http://museum.example"
ORIGIN = f"{SITE}/robots.txt"
ENDS = ["".join(letters) for letters in itertools.product(string.ascii_lowercase[1:], repeat=3)]
# 30,000 rules of which each looks everywhere in a path of many "a", in vain
LINES = [f"Disallow:/*a{end}" for end in ENDS] + [f"Disallow:/*aa{end}" for end in ENDS]
HOSTILE = ("User-agent: *\n" + "\n".join(LINES[:30_000]) + "\nDisallow: /private\n").encode()
QUICK_S = 0.1  # of CPU, for what takes seconds when nothing bounds it


@pytest.fixture
def crawler() -> Crawler:
    return get_crawler()


async def known(verdicts: Verdicts, rules: Rules, url: str) -> None:
    while not verdicts.knows(rules, url, "museum"):
        task = verdicts.begin(rules, url, "museum")
        assert task is not None
        await task


async def test_thousands_of_wildcards_take_no_time_of_the_reactor(scheduler: FrontierScheduler) -> None:
    assert len(HOSTILE) <= MAX_BYTES
    await keep_copy(scheduler.state, ORIGIN, "museum", body=HOSTILE)
    urls = [f"{SITE}/{part}/{'a' * 500}/{number}" for number in range(10) for part in ("p", "private")]
    robots, wanted = scheduler.robots, [(url, "museum") for url in urls]
    await robots.look_up(urls[0], "museum")
    assert robots.knows(urls[0], "museum")
    assert robots.verdict(urls[1], "museum") is None  # a request waits for it as for the robots.txt itself
    assert not robots.knows(urls[1], "museum")
    began = time.thread_time()
    await robots.prepare(wanted)
    found = [await robots.look_up(url, "museum") for url in urls]
    again = [robots.verdict(url, "museum") for url in urls]
    assert time.thread_time() - began < QUICK_S
    assert found == again
    assert [verdict and verdict.allowed for verdict in found] == [True, False] * 10
    assert found[1] is not None
    assert found[1].reason == "line 30002, Disallow: /private"
    judged = scheduler.crawler.stats.get_value("robots/judged_in_thread")
    assert judged == len(urls)
    assert 0 < scheduler.crawler.stats.get_value("robots/longest_verdict_s") < 5


async def test_a_url_that_would_take_too_long_is_not_fetched(crawler: Crawler) -> None:
    rules, verdicts = Rules.parse(HOSTILE), Verdicts(crawler)
    began = time.thread_time()
    for number in range(20):
        url = f"{SITE}/{'a' * 8000}{number}"
        assert verdicts.knows(rules, url, "museum")
        verdict = verdicts.find(rules, url, "museum")
        assert verdict is not None
        assert not verdict.allowed
        assert verdict.reason == refusal_for_work(rules, url)
        assert f"too many rules with wildcards to judge a URL of {len(url)} characters" in verdict.reason
    assert time.thread_time() - began < QUICK_S
    assert refusal_for_work(rules, SITE + "/picture.jpg") is None


async def test_a_robots_txt_as_sites_have_them_is_judged_at_once(crawler: Crawler) -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /*?filter{number}=\n" for number in range(2000))
    rules, verdicts = Rules.parse(body.encode()), Verdicts(crawler)
    verdict = verdicts.find(rules, f"{SITE}/photos/2024/05/picture-1234567.jpg?filter7=a", "museum")
    assert verdict is not None
    assert verdict.reason == "line 9, Disallow: /*?filter7="
    assert crawler.stats.get_value("robots/judged_in_thread") is None


async def test_a_verdict_is_kept_for_its_rules_and_few_are(
    crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 0)
    monkeypatch.setattr(module, "_MAX_FOUND", 3)
    verdicts, before, after = Verdicts(crawler), Rules.parse(HOSTILE), Rules.parse(HOSTILE)
    urls = [f"{SITE}/{number}" for number in range(5)]
    for url in urls:
        await known(verdicts, before, url)
    assert [verdicts.knows(before, url, "museum") for url in urls] == [False, False, True, True, True]
    assert not verdicts.knows(after, urls[4], "museum")
    assert verdicts.find(after, urls[4], "museum") is None
    await known(verdicts, after, urls[4])
    assert not verdicts.knows(before, urls[4], "museum")


async def test_only_so_many_wait_to_be_judged_and_closing_ends_them(
    crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 0)
    monkeypatch.setattr(module, "_MAX_UNDER_WAY", 3)
    verdicts, rules = Verdicts(crawler), Rules.parse(HOSTILE)
    tasks = [verdicts.begin(rules, f"{SITE}/{number}", "museum") for number in range(4)]
    assert [task is None for task in tasks] == [False, False, False, True]
    assert verdicts.begin(rules, f"{SITE}/0", "museum") is tasks[0]
    await verdicts.close()
    assert all(task is None or task.done() for task in tasks)
    await known(verdicts, rules, f"{SITE}/5")
