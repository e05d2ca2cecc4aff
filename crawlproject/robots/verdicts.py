"""Verdicts on URLs by the rules of a robots.txt.

A robots.txt may have 50,000 rules with wildcards, and a URL 8,192 characters: a verdict would take half a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from crawlproject.config import Config
from crawlproject.politeness.robots_txt import Rules
from crawlproject.texts import printable

_MOST_WORK = 1_500_000  # in the steps of `Rules.work`, some 3 ns each: 4 ms


class Verdict(NamedTuple):
    """Whether a URL may be fetched, and why not.

    `retry_in` (seconds) is set when that is unknown because the robots.txt could not be fetched. `opt_outs` are
    those that the robots.txt declares for a URL that may be fetched, with the line of each.
    """

    allowed: bool
    reason: str = ""
    retry_in: float | None = None
    opt_outs: Mapping[str, str] = MappingProxyType({})


def judge(rules: Rules, url: str) -> Verdict:
    """Return the verdict on a URL, within 4 ms."""
    if refusal := refusal_for_work(rules, url):
        return Verdict(False, refusal)
    allowed, line = rules.decide(url)
    if not allowed:
        return Verdict(False, quoted(line) if line else "")
    declared = rules.opt_outs(url)
    return Verdict(allowed=True, opt_outs={name: quoted(line) for name, line in declared.items()})


def refusal_for_work(rules: Rules, url: str) -> str | None:
    """Return why a URL is not fetched that takes too long to judge; None when it does not."""
    if rules.work(url) <= _MOST_WORK:
        return None
    return f"it has too many rules with wildcards to judge a URL of {len(url)} characters"


def refusal_for_opt_outs(declared: Mapping[str, str], config: Config) -> str | None:
    """Return why a picture must not be kept with these opt-outs (and the line of each); None if it may be."""
    refused = [f"{name} ({line})" for name, line in declared.items() if name in config.opt_outs]
    return ", ".join(refused) or None


def quoted(line: tuple[int, str]) -> str:
    """Return a line of a robots.txt, given with its number, for people to read."""
    return f"line {line[0]}, {printable(line[1])}"
