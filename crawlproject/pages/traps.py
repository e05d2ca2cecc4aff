"""Links that lead nowhere: endless spaces of addresses, told by their form."""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal, NamedTuple

LONGEST_URL = 1024  # characters
DEEPEST = 20  # links from the seed
MOST_SEGMENTS = 16
MOST_PARAMETERS = 6
FIRST_YEAR = 1990

_POOR_DEPTH = 8
_TIMES = 3  # that one segment may not stand in a path

# A year and a month: in a path, a file name or a parameter.
_DATE = re.compile(r"(\d{4})[/-](?<![^/=_-]\d{4}.)(?:0?[1-9]|1[0-2])(?=$|[/&?-])", re.ASCII)
_CALENDAR = re.compile(
    r"(?:^|[/?&])(?:calendar|events?|ical|month|year|date|day|tribe-bar-date|eventdate)(?:[/=]|$)", re.IGNORECASE
)


class Verdict(NamedTuple):
    """What a link is worth, its class in the frontier, and why: a word for counters, "" for a plain link."""

    worth: Literal["refused", "poor", "plain"]
    reason: str = ""


def judge(url: str, depth: int, *, nofollow: bool = False, year: int) -> Verdict:
    """Return what a link is worth.

    `url` is canonical, `depth` the number of links from the seed to it, `nofollow` what the link says (the page
    around it may say so, too: see `rules`), `year` the present one.
    """
    start = url.find("/", 8)
    reference = url[start:] if start > 0 else ""
    path, _, query = reference.partition("?")
    segments = [one for one in path.split("/") if one]
    years = [int(one) for one in _DATE.findall(reference)]
    are_near = all(FIRST_YEAR <= one <= year + 1 for one in years)
    refused = (
        ("length", len(url) > LONGEST_URL),
        ("depth", depth > DEEPEST),
        ("segments", len(segments) > MOST_SEGMENTS),
        ("repetition", _is_repeated(segments)),
        ("parameters", query.count("&") >= MOST_PARAMETERS),
        # A month of a calendar that nobody lives to see, or that is long over
        ("calendar", not are_near and _CALENDAR.search(reference) is not None),
    )
    for reason, holds in refused:
        if holds:
            return Verdict("refused", reason)
    poor = (
        ("nofollow", nofollow),
        ("query", bool(query)),
        ("depth", depth > _POOR_DEPTH),
        ("calendar", bool(years) and _CALENDAR.search(path) is not None),
        ("year", not are_near),  # perhaps the number of an object, or an old newspaper
    )
    for reason, holds in poor:
        if holds:
            return Verdict("poor", reason)
    return Verdict("plain")


def _is_repeated(segments: list[str]) -> bool:
    """Tell whether one segment stands in a path too often."""
    repeated = len(segments) - len(set(segments))
    return repeated >= _TIMES - 1 and max(Counter(segments).values()) >= _TIMES
