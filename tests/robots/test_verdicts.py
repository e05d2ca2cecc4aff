"""A robots.txt with tens of thousands of wildcards is not judged."""

from __future__ import annotations

import itertools
import string
import time

from crawlproject.politeness.robots_txt import MAX_BYTES, Rules
from crawlproject.robots.verdicts import judge, refusal_for_work

SITE = "http://museum.example"
ENDS = ["".join(letters) for letters in itertools.product(string.ascii_lowercase[1:], repeat=3)]
# 30,000 rules of which each looks everywhere in a path of many "a", in vain
LINES = [f"Disallow:/*a{end}" for end in ENDS] + [f"Disallow:/*aa{end}" for end in ENDS]
HOSTILE = ("User-agent: *\n" + "\n".join(LINES[:30_000]) + "\nDisallow: /private\n").encode()
QUICK_S = 0.1  # of CPU, for what takes seconds when nothing bounds it


def test_a_url_that_would_take_too_long_is_not_fetched() -> None:
    assert len(HOSTILE) <= MAX_BYTES
    rules = Rules.parse(HOSTILE)
    began = time.thread_time()
    for number in range(20):
        url = f"{SITE}/{'a' * 8000}{number}"
        verdict = judge(rules, url)
        assert not verdict.allowed
        assert verdict.reason == refusal_for_work(rules, url)
        assert f"too many rules with wildcards to judge a URL of {len(url)} characters" in verdict.reason
    assert time.thread_time() - began < QUICK_S


def test_a_robots_txt_as_sites_have_them_is_judged() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /*?filter{number}=\n" for number in range(2000))
    verdict = judge(Rules.parse(body.encode()), f"{SITE}/photos/2024/05/picture-1234567.jpg?filter7=a")
    assert verdict.reason == "line 9, Disallow: /*?filter7="
