"""The report of a source, for the admin of that site: what was requested of it, and how we behaved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from crawlproject.contrib.report.requests import KEPT_DAYS, FetchedRobots, Hour, RequestsOf, read_requests
from crawlproject.errors import CrawlprojectError
from crawlproject.exclusions import exclusion_of, noted_exclusion
from crawlproject.politeness.outcomes import LONGEST_DELAY_S
from crawlproject.politeness.robots_txt import MOST_DELAY_S, TOKEN, Rules, robots_url
from crawlproject.sources.domains import domain_of_url, host_of_url
from crawlproject.sources.names import source_name
from crawlproject.state.calls import SourceStatus
from crawlproject.state.client import State
from crawlproject.state.source_table import gone_statuses, stored, unknown_sources
from crawlproject.status.attribution import attribution
from crawlproject.status.source_status import sample_sources

MOST_ROBOTS = 50  # files
LONGEST_ROBOTS = 20_000  # characters of each

_NOT_RESULTS = frozenset(
    {"txt", "robots", "opt_out", "slowed", "held", "opened", "halted", "lost"}
)  # kinds of an hour, see the Lua module `report`


class UnknownSource(CrawlprojectError):
    """Nothing is known of a source: it was never crawled, and no catalogue names it."""


async def source_of(state: State, argument: str) -> str:
    """Return the source that a name, a host or a URL is about.

    Raises:
        UnknownSource: `argument` is none of them.

    """
    try:
        if "/" not in argument:
            name = source_name(argument)
            shard = state.shard_for(name)
            if not await unknown_sources(shard, [name]) or (await read_requests(shard, name)).hours:
                return name
        url = argument if "/" in argument else f"http://{argument}/"
        domain = domain_of_url(url)
        if domain and urlsplit(url).scheme in {"http", "https"}:
            return (await attribution(state, None, domain)).source
        return source_name(argument)
    except ValueError as error:
        raise UnknownSource(f"{argument!r:.200} is neither a source nor a URL: {error}") from None


async def site_report(state: State, source: str) -> dict[str, Any]:
    """Return the report of `source`; README.md describes its keys.

    Raises:
        UnknownSource: there is nothing to report on.

    """
    state = state.shard_for(source)
    found = await read_requests(state, source)
    excluded = await exclusion_of(state, source, source)
    if excluded is None and not found.hours and await unknown_sources(state, [source]):
        raise UnknownSource(
            f"nothing is known of {source}: the catalogue does not name it, nothing was requested of it in the "
            f"last {KEPT_DAYS} days; see scrapy sources, or for what a URL belongs to scrapy explain URL"
        )
    [row] = [one async for one in sample_sources(state, [source])]
    note = None if excluded is None else await noted_exclusion(state, excluded)
    return {
        "source": source,
        "made": _iso(found.now),
        "days": KEPT_DAYS,
        "state": row.state if excluded is None else "excluded",
        "excluded": None if excluded is None else {"name": excluded, "time": note and note.time},
        "who": {
            "user_agent": state.config.user_agent,
            "contact": state.config.contact,
            "robots_token": TOKEN,
            "opt_outs": list(state.config.opt_outs),
        },
        "gone": sorted(await gone_statuses(state, source)),
        "rate": {
            "limit": row.rate_limit,
            "effective": row.effective_rate,
            "reason": row.reason,
            "retry_after_max": LONGEST_DELAY_S,
        },
        "totals": {
            **_figures(found.hours),
            "hours_above_allowed": sum(hour.peak > most_allowed(hour.rate) for hour in found.hours),
        },
        "hours": [{"begin": _iso(hour.begin), **_figures([hour])} for hour in found.hours],
        "robots": await _robots(state, source, found, row.status),
        "incidents": [{"time": _iso(one.time), "what": one.what, "why": one.why} for one in found.incidents],
    }


def most_allowed(rate: float) -> float:
    """Return how many requests a source of this rate may get in a second, see docs/behaviour.md."""
    return 1.1 * rate + 1


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def _mean(hours: Iterable[Hour]) -> float | None:
    """Return the mean rate between the first and the last request of each hour; None without time between."""
    several = [hour for hour in hours if hour.requests > 1]
    span = sum(hour.last - hour.first for hour in several)
    return sum(hour.requests - 1 for hour in several) / span if span > 0 else None


def _kinds(kinds: Mapping[str, int]) -> dict[str, Any]:
    """Return the kinds of an hour, or of all, under the names of the report."""
    results = {name: count for name, count in kinds.items() if name not in _NOT_RESULTS and name[:1] != "-"}
    return {
        "results": dict(sorted(results.items())),
        "not_sent": {name[1:]: count for name, count in sorted(kinds.items()) if name[:1] == "-"},
        "for_robots_txt": kinds.get("txt", 0),
        "refused_by_robots": kinds.get("robots", 0),
        "opt_outs_honoured": kinds.get("opt_out", 0),
        **{name: kinds.get(name, 0) for name in ("slowed", "held", "opened", "halted")},
        "maybe_more": kinds.get("lost", 0),
    }


def _peak(hour: Hour) -> dict[str, Any]:
    return {
        "requests": hour.peak,
        "at": _iso(hour.peak_at),
        "rate": hour.rate,
        "allowed": round(most_allowed(hour.rate), 3),
    }


def _figures(hours: Sequence[Hour]) -> dict[str, Any]:
    """Return what an hour, or all of them, come to."""
    asked = [hour for hour in hours if hour.requests]
    kinds: Counter[str] = Counter()
    for hour in hours:
        kinds.update(hour.kinds)
    mean = _mean(asked)
    return {
        "requests": sum(hour.requests for hour in asked),
        "bytes": sum(hour.received for hour in asked),
        "first": _iso(asked[0].first) if asked else None,
        "last": _iso(asked[-1].last) if asked else None,
        "mean_rps": None if mean is None else round(mean, 4),
        "peak": _peak(max(asked, key=lambda hour: hour.peak)) if asked else None,
        **_kinds(kinds),
    }


async def _robots(state: State, source: str, found: RequestsOf, status: SourceStatus) -> list[dict[str, Any]]:
    """Return each robots.txt of the source, with its text as far as it is kept, the last fetched first."""
    noted = {one.url: one for one in found.robots[:MOST_ROBOTS]}
    [row] = await stored(state, [source])
    hosts = row.options.get("hosts") or []
    urls = dict.fromkeys([*noted, *_guessed(source, status, hosts[:MOST_ROBOTS])])
    files = [await _robots_txt(state, source, url, noted.get(url)) for url in list(urls)[: 2 * MOST_ROBOTS]]
    return [one for one in files if one is not None][:MOST_ROBOTS]


def _guessed(source: str, status: SourceStatus, hosts: Sequence[str]) -> list[str]:
    """Return where a robots.txt may be that another source has asked for, or that permission makes needless.

    `hosts` are those of the catalogue; others were seen in the last minutes.
    """
    urls = []
    for host in (*hosts, *(one["host"] or "" for one in status.hosts), source):
        for scheme in ("https", "http"):
            try:
                url = robots_url(f"{scheme}://{host}/")
            except ValueError:
                continue
            if host and host_of_url(url) == host:
                urls.append(url)
    return urls


async def _robots_txt(state: State, source: str, url: str, fetched: FetchedRobots | None) -> dict[str, Any] | None:
    reply = await state.scripts.look_robots(None, url, source)
    if fetched is None and (reply.what == "wait" or (reply.what == "ignore" and url.startswith("http:"))):
        return None
    text, meaning = "", ""
    match reply.what:
        case "ignore":
            meaning = "not asked for: the site has given us permission"
        case "wait":
            meaning = "fetched again before the next request; its text is no longer kept here"
        case "refused":
            meaning = "nothing is requested: " + reply.body.decode(errors="replace")
        case "unreachable":
            meaning = f"nothing is requested while it cannot be fetched ({reply.reason})"
        case "none":
            meaning = (
                f"could not be fetched for 30 days ({reply.reason}): everything is allowed (RFC 9309)"
                if reply.reason
                else "there is none, or it has no rules for us: everything is allowed"
            )
        case _:
            text = reply.body.decode(errors="replace")
            meaning = await asyncio.to_thread(_meaning, reply.body)  # a large one takes long
    return {
        "url": url,
        "fetched": None if fetched is None else _iso(fetched.time),
        "status": None if fetched is None else fetched.result,
        "read_from": reply.url if reply.url != url else None,
        "obeyed": meaning,
        "text": text[:LONGEST_ROBOTS],
        "characters": len(text),
    }


def _meaning(body: bytes) -> str:
    rules = Rules.parse(body)
    if rules.is_empty:
        return "it has no rules for us: everything is allowed (only its Sitemap lines are kept)"
    if rules.delay is None:
        return "its rules are obeyed"
    if rules.delay > MOST_DELAY_S:
        most = f"{MOST_DELAY_S:g} s, the most that we wait"
        return f"its rules are obeyed; it asks for {rules.delay:g} s between requests: {most}"
    return f"its rules are obeyed, and the {rules.delay:g} s between requests that it asks for"
