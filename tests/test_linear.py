"""Whatever reads strangers' text takes a time linear in its length: every pattern, and the parsers around them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from re import _constants as code
from re import _parser
from typing import Any, NamedTuple

import pytest
from scrapy.http import Headers, Response

import crawlproject
from crawlproject.models import Format
from crawlproject.net.http1 import Answer, BadResponse
from crawlproject.pages.canonical import canonical_url
from crawlproject.pages.images import largest
from crawlproject.pages.media import KINDS
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
_OF = ("aZbyé", "10", " ", "\n\t\r", "-.,;:=_~/<>()[]{}\"'\\&%*#?+@!$^`|")  # characters of each kind
_compile: Any = importlib.import_module("re._compiler").compile
_REPEATS = {code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT}


class Case(NamedTuple):
    """A text that is made to take long: a beginning that a pattern matches, what it may repeat, and an end."""

    before: str
    unit: str
    after: str

    def text(self, size: int) -> str:
        return self.before + self.unit * (size // len(self.unit)) + self.after


class Made:
    """What a pattern is made of: `repeated` has what may stand before each repetition, and what it repeats."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self.repeated: set[tuple[str, str]] = set()
        self.characters: set[str] = set()
        self.matched = self._walk(_parser.parse(pattern.pattern, pattern.flags), "")

    def cases(self) -> Iterator[Case]:
        signs = sorted(self.characters, key=lambda one: (one.isalpha(), one))[:8]
        pairs = {("", one + other) for one in signs for other in ["", *signs] if one != other}
        begun = {("", self.matched[:end]) for end in (*range(1, 9), len(self.matched) - 1, len(self.matched))}
        for before, unit in sorted(self.repeated | pairs | begun):
            for after in ("", "\0"):
                if unit:
                    yield Case(before, unit, after)

    def _walk(self, parsed: Any, before: str) -> str:
        """Return a text that a part of the pattern matches, and note its repetitions."""
        text = ""
        for kind, value in parsed:
            here = before + text
            if kind is code.LITERAL:
                text += chr(value)
            elif kind in {code.NOT_LITERAL, code.ANY}:
                text += "a" if value != ord("a") else "b"
            elif kind is code.IN:
                text += self._one_of((kind, value))[0]
            elif kind is code.BRANCH:
                text += [self._walk(branch, here) for branch in value[1]][0]  # noqa: RUF015 - notes all
            elif kind is code.SUBPATTERN:
                text += self._walk(value[3], here)
            elif kind is code.ATOMIC_GROUP:
                text += self._walk(value, here)
            elif kind in {code.ASSERT, code.ASSERT_NOT}:
                self._walk(value[1], here)
            elif kind in _REPEATS:
                least, most, part = value
                outside, self.characters = self.characters, set()
                once = self._walk(part, here)
                if most > 20:
                    self.repeated |= {(here, unit) for unit in {once, *self.characters}}
                self.characters |= outside
                text += once * max(least, 1)
        self.characters |= set(text[:1])
        return text

    def _one_of(self, parsed: Any) -> list[str]:
        """Return characters of a set, one of each kind."""
        belongs = _compile(_parser.SubPattern(_parser.State(), [parsed])).match
        found = [one for kind in _OF for one in [*filter(belongs, kind)][:2]]
        self.characters |= set(found)
        return found or ["~"]


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


@pytest.mark.parametrize(("pattern", "how", "most"), list(patterns()))
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

    cases = list(Made(pattern).cases())
    for case in cases[:: int(len(cases) * most / MOST_S / _MOST_CASES) + 1]:
        assert not (wrong := fault(run, case.text, most)), (case, wrong)


NOW = datetime(2026, 11, 24, tzinfo=UTC)
HTML = Headers({"Content-Type": ["text/html"]})


def _page(html: str) -> object:
    return read_page("https://museum.example/", HTML, html.encode(), NOW, link_texts=True, media=KINDS)


def _heads(text: str) -> object:
    for read in (Answer("GET").read, Answer("GET")._read_head):  # the second without a bound
        with suppress(BadResponse):
            read(text.encode())
    return None


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
    in_page += [
        Case(f"<{before}", unit, ">")
        for before in ("a href=x", "audio", "div")
        for unit in ("><i", "><div><a href=x", "><audio", "><source src=")
    ]
    ld = [
        Case("<script type='application/ld+json'>", unit, "</script>") for unit in ("[", '{"a":', '"', "1", "\\")
    ]
    xml = [Case("<urlset>", unit, "") for unit in ("<url>", "<loc>", "&", " ", "<!--", "]]>", "<url/>")]
    heads = [Case("HTTP/1.1 200 OK\r\n", unit, "\r\n\r\n") for unit in ("A: 1\r\n", "\r\n a", " ", "a:\r\n")]
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
            lambda text: read_page("https://a.example/", Headers({"Content-Type": [text]}), b"<p>", NOW),
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
