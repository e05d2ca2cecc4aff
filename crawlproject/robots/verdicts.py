"""Verdicts on URLs by the rules of a robots.txt: at once where that is quick, else in a thread.

A robots.txt may have 50,000 rules with wildcards, and a URL 8,192 characters: then a verdict takes half a second.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from scrapy.crawler import Crawler

from crawlproject.politeness.robots_txt import Rules
from crawlproject.texts import printable

# In the steps of `Rules.work`, some 3 ns each
_AT_ONCE = 750_000  # 2 ms
_MOST_WORK = 20_000_000  # 55 ms
_MAX_FOUND = 2048  # verdicts from the thread that are kept; more than a worker's leases
_MAX_UNDER_WAY = 512


class Verdict(NamedTuple):
    """Whether a URL may be fetched, and why not.

    `retry_in` (seconds) is set when that is unknown because the robots.txt could not be fetched. `opt_outs` are
    those that the robots.txt declares for a URL that may be fetched, with the line of each.
    """

    allowed: bool
    reason: str = ""
    retry_in: float | None = None
    opt_outs: Mapping[str, str] = MappingProxyType({})


class Verdicts:
    """Judges the URLs of sources.

    What takes longer than 2 ms is judged in a thread, one URL at a time, and kept.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._found: OrderedDict[tuple[str, str], tuple[weakref.ref[Rules], Verdict]] = OrderedDict()
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()  # several threads would keep the reactor waiting for the interpreter

    def find(self, rules: Rules, url: str, source: str) -> Verdict | None:
        """Return the verdict on a URL of `source`; None when it must be judged in a thread first, see `begin`."""
        work = rules.work(url)
        if work <= _AT_ONCE:
            return _judged(rules, url)
        if refusal := refusal_for_work(rules, url):
            return Verdict(False, refusal)
        return self._kept(rules, url, source)

    def knows(self, rules: Rules, url: str, source: str) -> bool:
        """Tell whether `find` returns a verdict."""
        work = rules.work(url)
        return work <= _AT_ONCE or work > _MOST_WORK or self._kept(rules, url, source) is not None

    def begin(self, rules: Rules, url: str, source: str) -> asyncio.Task[None] | None:
        """Have a URL judged in a thread; None when too many are waiting for that already."""
        key = (url, source)
        task = self._under_way.get(key)
        if task is None and len(self._under_way) < _MAX_UNDER_WAY:
            task = self._under_way[key] = asyncio.create_task(self._judge(rules, key))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return task

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _kept(self, rules: Rules, url: str, source: str) -> Verdict | None:
        kept = self._found.get((url, source))
        if kept is None or kept[0]() is not rules:
            return None
        self._found.move_to_end((url, source))
        return kept[1]

    async def _judge(self, rules: Rules, key: tuple[str, str]) -> None:
        async with self._turn:
            verdict, seconds = await asyncio.to_thread(_timed, rules, key[0])
        self.crawler.stats.inc_value("robots/judged_in_thread")
        self.crawler.stats.max_value("robots/longest_verdict_s", round(seconds, 4))
        self._found[key] = (weakref.ref(rules), verdict)
        self._found.move_to_end(key)
        while len(self._found) > _MAX_FOUND:
            self._found.popitem(last=False)


def refusal_for_work(rules: Rules, url: str) -> str | None:
    """Return why a URL is not fetched that takes too long to judge; None when it does not."""
    if rules.work(url) <= _MOST_WORK:
        return None
    return f"it has too many rules with wildcards to judge a URL of {len(url)} characters"


def quoted(line: tuple[int, str]) -> str:
    """Return a line of a robots.txt, given with its number, for people to read."""
    return f"line {line[0]}, {printable(line[1])}"


def _judged(rules: Rules, url: str) -> Verdict:
    if line := rules.forbidding(url):
        return Verdict(False, quoted(line))
    declared = rules.opt_outs(url)
    return Verdict(allowed=True, opt_outs={name: quoted(line) for name, line in declared.items()})


def _timed(rules: Rules, url: str) -> tuple[Verdict, float]:
    began = time.thread_time()
    return _judged(rules, url), time.thread_time() - began
