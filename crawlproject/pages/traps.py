"""Links that lead nowhere: endless spaces of addresses, told by their form."""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import NamedTuple

LONGEST_URL = 1024  # characters
DEEPEST = 20  # links from the seed
MOST_SEGMENTS = 16
MOST_PARAMETERS = 6
FIRST_YEAR = 1990

_POOR_DEPTH = 8
_TIMES = 3  # that one segment may not stand in a path

# A year and a month: in a path, a file name or a parameter.
_DATE = re.compile(r"(?:^|[/=_-])(\d{4})(?:[/-](?:0?[1-9]|1[0-2]))(?=$|[/&?-])", re.ASCII)
_CALENDAR = re.compile(
    r"(?:^|[/?&])(?:calendar|events?|ical|month|year|date|day|tribe-bar-date|eventdate)(?:[/=]|$)", re.IGNORECASE
)


class Worth(Enum):
    """What a link is worth: its class in the frontier."""

    REFUSED = "refused"
    POOR = "poor"
    PLAIN = "plain"


class Verdict(NamedTuple):
    """What is thought of a link; `reason` is a word for counters, "" for a plain link."""

    worth: Worth
    reason: str = ""


def judge(url: str, depth: int, *, nofollow: bool = False, year: int) -> Verdict:
    """Return what a link is worth.

    `url` is canonical, `depth` the number of links from the seed to it, `nofollow` what the link says (the page
    around it may say so, too: see `rules`), `year` the present one.
    """
    start = url.find("/", 8)
    path, _, query = url[start:].partition("?") if start > 0 else ("", "", "")
    segments = [one for one in path.split("/") if one]
    parameters = query.count("&") + 1 if query else 0
    years = [int(one) for one in _DATE.findall(path + "?" + query)]
    is_far = not _all_near(years, year) and _CALENDAR.search(f"{path}?{query}") is not None
    if reason := _refusal(url, depth, segments, parameters, is_far=is_far):
        return Verdict(Worth.REFUSED, reason)
    if nofollow:
        reason = "nofollow"
    elif parameters:
        reason = "query"
    elif depth > _POOR_DEPTH:
        reason = "depth"
    elif years and _CALENDAR.search(path):
        reason = "calendar"
    elif not _all_near(years, year):  # perhaps the number of an object, or an old newspaper
        reason = "year"
    return Verdict(Worth.POOR, reason) if reason else Verdict(Worth.PLAIN)


def _all_near(years: list[int], year: int) -> bool:
    return all(FIRST_YEAR <= one <= year + 1 for one in years)


def _refusal(url: str, depth: int, segments: list[str], parameters: int, *, is_far: bool) -> str:
    found = ""
    if len(url) > LONGEST_URL:
        found = "length"
    elif depth > DEEPEST:
        found = "depth"
    elif len(segments) > MOST_SEGMENTS:
        found = "segments"
    elif len(segments) >= _TIMES and max(Counter(segments).values()) >= _TIMES:
        found = "repetition"
    elif parameters > MOST_PARAMETERS:
        found = "parameters"
    elif is_far:  # a month of a calendar that nobody lives to see, or that is long over
        found = "calendar"
    return found
