"""Whatever reads strangers' text takes a time linear in its length: every pattern, and the parsers around them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import from_regex
from scrapy.http import Response

import crawlproject
from crawlproject.models import Format
from crawlproject.net.connections import Heads
from crawlproject.pages.canonical import canonical_url
from crawlproject.pages.images import largest
from crawlproject.pages.page import read_page
from crawlproject.pages.sitemaps import read_sitemap, sitemaps_of_robots
from crawlproject.politeness.outcomes import retry_after_of
from crawlproject.politeness.robots_txt import Rules, freshness, opt_outs
from crawlproject.texts import without_secrets

HALF, WHOLE = 32_768, 65_536  # characters
MOST_S = 0.1  # for the second; where it is the square, seconds
_MOST_CASES = 300  # of a pattern
MOST_RATIO = 2.5  # of it to the first
# Of lines of the log, in which strangers have no more than some KiB: a name is looked for at every character.
_LONGER = {"crawlproject.texts._SHAPES": 4}
# How patterns are used that go by another name
_USED = {"crawlproject.texts._SHAPES": ["sub"]}
_METHODS = {"match": "match", "fullmatch": "fullmatch", "search": "search"}  # others find all


class Case(NamedTuple):
    """A text that is made to take long: a beginning that a pattern matches, what it may repeat, and an end."""

    before: str
    unit: str
    after: str

    def text(self, size: int) -> str:
        return self.before + self.unit * (size // len(self.unit)) + self.after


def matches(pattern: re.Pattern[Any]) -> list[str]:
    """Return texts that a pattern matches, always the same."""
    found: list[str] = []

    @settings(max_examples=12, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(from_regex(pattern, fullmatch=True))
    def note(text: str | bytes) -> None:
        found.append((text if isinstance(text, str) else text.decode("latin-1"))[:64])

    note()
    return found


def cases(pattern: re.Pattern[Any]) -> list[Case]:
    """Return repetitions of the characters in what a pattern matches, in pairs, too, and of its beginnings."""
    matched = sorted({*matches(pattern)} - {""}, key=lambda text: (len(text), text))
    signs = sorted({sign for text in matched for sign in text[:8]}, key=lambda one: (one.isalpha(), one))[:8]
    begun = {text[:end] for text in matched for end in (*range(1, 9), len(text) - 1, len(text))} - {""}
    pairs = {one + other for one in signs for other in ["", *signs] if one != other}
    longer = {(before, unit) for before in begun for unit in (*signs, before[-2:])}
    units = {("", unit) for unit in begun | pairs} | longer
    return [Case(before, unit, after) for before, unit in sorted(units) for after in ("", "\0")]


def patterns() -> Iterator[Any]:
    """Yield every pattern that a module keeps, also in a list or dictionary, and how it is used."""
    for info in pkgutil.walk_packages(crawlproject.__path__, "crawlproject."):
        module = importlib.import_module(info.name)
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            for number, pattern in enumerate(_in(value)):
                of_it = re.findall(rf"\b{name}\.(\w+)\(", source)
                used = (
                    (["match"] if isinstance(value, Format) else of_it)
                    or _USED.get(f"{info.name}.{name}")
                    or re.findall(r"(?<!\bre)\.(match|fullmatch|search|finditer|findall|sub|split)\(", source)
                )
                for how in sorted({_METHODS.get(one, "finditer") for one in used}):
                    most = MOST_S * _LONGER.get(f"{info.name}.{name}", 1)
                    yield pytest.param(pattern, how, most, id=f"{info.name}.{name}-{number}-{how}")


def _in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Format):
        yield value.begins
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _in(one)


def took(run: Callable[[Any], object], text: Any, times: int = 1) -> float:
    durations = []
    for _ in range(times):
        began = time.thread_time()
        run(text)
        durations.append(time.thread_time() - began)
    return min(durations)


def fault(run: Callable[[Any], object], made: Callable[[int], Any], most: float) -> str:
    """Return what is wrong with the time that a text takes; "" if it is linear."""
    for size in (
        24,
        512,
        8192,
        WHOLE,
    ):  # a pattern cannot be interrupted: what explodes is found when it is small
        if took(run, made(size)) > most and (least := took(run, made(size), 5)) > most:
            return f"{size} characters take {least:.3f} s"
    if took(run, made(WHOLE)) < most / 2:  # the square of so many characters would take seconds
        return ""
    ratios = (
        took(run, made(WHOLE), 5) / took(run, made(HALF), 5) for _ in range(4)
    )  # the machine does other things
    return (
        ""
        if any(ratio <= MOST_RATIO for ratio in ratios)
        else f"more than {MOST_RATIO} times as long for twice as much"
    )


@pytest.mark.parametrize(("pattern", "how", "most"), patterns())
def test_a_pattern_takes_time_linear_in_the_length_of_the_text(
    pattern: re.Pattern[Any], how: str, most: float
) -> None:
    def run(text: str) -> None:
        subject = text if isinstance(pattern.pattern, str) else text.encode()
        if how == "finditer":
            for _ in pattern.finditer(subject):
                pass
        else:
            getattr(pattern, how)(subject)

    made = cases(pattern)
    for case in made[:: int(len(made) * most / MOST_S / _MOST_CASES) + 1]:
        assert not (wrong := fault(run, case.text, most)), (case, wrong)


NOW = datetime(2026, 11, 24, tzinfo=UTC)
HTML = {"Content-Type": ["text/html"]}


def _page(html: str) -> object:
    return read_page("https://museum.example/", HTML, html.encode(), NOW)


def _heads(text: str) -> object:
    heads = Heads()
    heads.received = [text.encode()]
    return heads.response


def _parsers() -> dict[str, tuple[Callable[[str], object], list[Case]]]:
    """Return what reads a text, and texts that it might read slowly."""
    separators = [
        Case("", unit, after) for unit in (",", " ", ";", '"', "\\", "a,", "a=b;", ", ") for after in ("", "x")
    ]
    lines = [Case("", unit, "x") for unit in ("\n", "\r", " ", ":", "a:\n", " \n", "#", "*", "User-agent: *\n")]
    rates = [Case(f"User-agent: *\n{name}: 1/1", " ", "x") for name in ("Request-rate", "Crawl-delay", "Disallow")]
    paths = [Case("User-agent: *\nDisallow: /", unit, "") for unit in ("*", "*a", "%", "%2", "%41", "$", "/")]
    in_page = [
        Case(f"<{before}", unit, f"{after}>")
        for before, after in (("img srcset='", "'"), ("a href='", "'"), ("meta name=robots content='", "'"))
        for unit in (",", " ", "a, ", "a (", "()", "/", "?", "&", "%", "noai,", ";")
    ]
    ld = [
        Case("<script type='application/ld+json'>", unit, "</script>") for unit in ("[", '{"a":', '"', "1", "\\")
    ]
    xml = [Case("<urlset>", unit, "") for unit in ("<url>", "<loc>", "&", " ", "<!--", "]]>", "<url/>")]
    heads = [Case("HTTP/1.1 200 OK\r\n", unit, "\r\n\r\n") for unit in ("Content-Length: 1\r\n", " ", "a:\r\n")]
    blank = Case("HTTP/1.1 200 OK\r\nContent-Length: 1", " ", "x\r\n\r\n")
    names = ("x-robots-tag", "content-usage")
    dates = [
        Case(before, unit, "") for before in ("", "Mon, 1 Jan ") for unit in ("1", " ", "-", ":", "a ", "(", ",")
    ]
    return {
        "srcset": (lambda text: largest([text]), separators),
        "robots.txt": (lambda text: Rules.parse(text.encode()), [*lines, *rates, *paths]),
        "sitemaps of robots.txt": (lambda text: sitemaps_of_robots(text.encode(), "https://a.example/"), lines),
        "Cache-Control": (lambda text: freshness(text.encode()), separators),
        "Retry-After": (lambda text: retry_after_of(_response("Retry-After", text)), dates),
        "Date": (lambda text: retry_after_of(_response("Date", text)), dates),
        "opt-outs": (lambda text: opt_outs({name: [text] for name in names}, NOW), separators),
        "Content-Type": (
            lambda text: read_page("https://a.example/", {"Content-Type": [text]}, b"<p>", NOW),
            separators,
        ),
        "page": (_page, [*in_page, *ld]),
        "sitemap": (lambda text: read_sitemap("https://a.example/", text.encode()), [*xml, *lines]),
        "url": (lambda text: canonical_url(f"https://a.example/{text}"), separators),
        "heads": (_heads, [*heads, blank, Case("HTTP/1.1 100 C\r\n\r\n" * 200, "a", "")]),
        "log": (without_secrets, [*separators, Case("https://", "@", "/"), Case("password", "\\", '"')]),
    }


def _response(name: str, text: str) -> Response:
    return Response("https://a.example/", headers={"Retry-After": "Mon, 1 Jan 2029 00:00:00 GMT", name: text})


@pytest.mark.parametrize("name", _parsers())
def test_a_parser_takes_time_linear_in_the_length_of_the_text(name: str) -> None:
    run, cases = _parsers()[name]
    for case in cases:
        assert not (wrong := fault(run, case.text, 10 * MOST_S)), (case, wrong)
