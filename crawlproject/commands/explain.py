"""`scrapy explain`: what would happen to a URL, and why."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import Any

from scrapy import Request
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.config import Config
from crawlproject.exclusions import exclusion_of
from crawlproject.frontier.codec import digest, digest_of
from crawlproject.frontier.contents import MOST_LOOKED_AT, find_request
from crawlproject.frontier.seeds import seed_of
from crawlproject.models import IDENTIFIER
from crawlproject.net.resolver import Resolver
from crawlproject.pages.canonical import canonical_url
from crawlproject.pages.traps import judge
from crawlproject.politeness import robots_txt
from crawlproject.politeness.robots_txt import Rules, quoted, refusal_for_opt_outs, robots_url
from crawlproject.sources.domains import domain_of_url, host_of_url
from crawlproject.sources.names import source_name
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.state.source_table import unknown_sources
from crawlproject.status.attribution import attribution, reason_for_name, reason_for_url
from crawlproject.status.outcome_of_url import last_end
from crawlproject.status.reporter import present_spiders
from crawlproject.status.source_status import (
    duration,
    hold_of,
    interval_of,
    pause,
    said_of_links,
    sample_sources,
    seen_on,
)
from crawlproject.texts import counted, printable, scrapy_command, without_userinfo


class Command(cli.Question):
    """Explain a URL: its source and the status of that, whether it was seen before, its last outcome, the rules
    in its robots.txt, all obstacles to a request, and when one would be due. Explain a SOURCE: the URLs that are
    crawled under its name, and its status. Sends no request.
    """

    arguments = "[options] URL|SOURCE"
    examples = ("scrapy explain 'https://museum.example/a.jpg?width=640&page=2'", "scrapy explain citymuseum")
    spider_help = "the spider that would crawl it"
    indent = 2

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--source", help="the source that its seed names (default: by host)")
        parser.add_argument("--uuid", help="the uuid that its seed names (default: made from the URL)")

    @staticmethod
    def check(args: list[str]) -> list[str]:
        if len(args) != 1:
            raise UsageError("expected exactly one URL or SOURCE")
        return args

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> dict[str, Any]:
        await cli.remark_unread(state)
        name = _source_in(args[0])
        if name is None:
            said = await explain(state, args[0], opts.source, opts.uuid)
            if not (said["seen"] or said["ended"] or said["request"]):
                await _remark_others(state, said)
            return said
        if opts.source or opts.uuid:
            raise UsageError(f"--source and --uuid apply only to a URL, and {args[0]!r:.60} is a source name")
        return await explain_source(state, name)

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        return _in_words(said, opts)


def _source_in(argument: str) -> str | None:
    """Return the source that an argument names; None for a URL, and for what is neither."""
    with suppress(ValueError):
        return None if "/" in argument else source_name(argument)
    return None


async def _remark_others(state: State, said: dict[str, Any]) -> None:
    """Say which other spiders have seen a URL that this one has not."""
    for name in await present_spiders(state):
        other = state.beside(name).shard_for(said["source"])
        meta = {IDENTIFIER: said["identifier"]} if name == "images" else {}
        if await other.scripts.was_seen(digest(Request(said["url"], meta=meta))):
            command = scrapy_command("explain", spider=name, of=[said["url"]])
            cli.remark(f"the spider {name} has seen it: {command}")


async def explain_source(state: State, name: str) -> dict[str, Any]:
    """Return what is crawled as the source `name`, and its status; docs/operators.md describes the keys."""
    owner = await state.shard_for(name).scripts.attribute(None, name)
    state = state.shard_for(name)
    found = await state.scripts.attribute(name, None)
    is_known = not await unknown_sources(state, [name])
    [row] = [one async for one in sample_sources(state, [name])]
    obstacles = (hold_of(row.status).reason, (await pause(state)).reason)
    return {
        "crawled_as": reason_for_name(found, name, owner, is_known=is_known),
        "obstacles": [obstacle for obstacle in obstacles if obstacle],
        "last_50_statuses": row.status.statuses,
        **row.public(),
    }


async def explain(state: State, url: str, source: str | None = None, uuid: str | None = None) -> dict[str, Any]:
    """Return what would happen to a seed with this URL now; docs/operators.md describes the keys.

    Raises:
        BadSeed: `url` or `source` is invalid.

    """
    seed = seed_of({"url": url, "source": source, "uuid": uuid})
    # Other spiders know a request by its URL alone.
    spider = state.keys.spider
    known_as = (canonical_url(seed.url) if spider == "pages" else None) or seed.url
    request = Request(known_as, meta={IDENTIFIER: seed.identifier} if spider == "images" else {})
    domain = domain_of_url(request.url)
    found = await attribution(state, seed.source, domain)
    name = found.source
    state = state.shard_for(name)
    believed = seed.source == name and found.kind not in {"domain", "unknown"}
    source_from = "--source" if believed else "domain" if name == domain else "catalogue"
    [row] = [one async for one in sample_sources(state, [name])]
    status, hold = row.status, hold_of(row.status)
    ended, looked_back = await last_end(state, without_userinfo(request.url), uuid and seed.identifier, cli.remark)
    seen = await state.scripts.was_seen(digest(request))
    place = await find_request(state, name, request.url, uuid and seed.identifier, status.spilled)
    robots = await _robots(state, request.url, name)
    refused_address, unresolved = await _address(state.config, request.url)
    is_unknown = status.by_size is None or found.kind in {"domain", "unknown", "rate"}
    refused = state.config.unknown_sources == "refuse" and is_unknown
    excluded = await exclusion_of(state, name, host_of_url(request.url))
    if excluded is None and seed.source is not None:
        excluded = await exclusion_of(state, seed.source, "")
    paused = (await pause(state)).reason
    known = seen and place is None
    by_robots = {"disallowed": inf, "unreachable": robots["for_s"]}.get(robots["verdict"])
    obstacles = [  # each with the seconds that it lasts: forever, or until somebody acts, inf
        (excluded and f"{excluded} is excluded: see {scrapy_command('excluded')}", inf),
        (known and 'seen before: a seed for it is a duplicate unless it has "again"', 0.0),
        (refused and "the catalogue does not name its source (CRAWL_UNKNOWN_SOURCES is refuse)", inf),
        (refused_address and f"address: {refused_address}", inf),
        (unresolved and f"name: {unresolved}", 0.0),
        (by_robots is not None and f"robots.txt: {robots['reason']}", by_robots or 0.0),
        (status.state != "excluded" and hold.reason, inf if hold.seconds is None else hold.seconds),
        (paused, inf),
    ]
    due = None
    if (held := max([row.next_slot_s, *(seconds for reason, seconds in obstacles if reason)])) < inf:
        if place is None:
            due = held + (row.queued + row.waiting) * interval_of(status)
        elif place.at is not None:
            due = max(held, place.at - status.now)
        else:
            due = 0.0 if place.in_front is None else held + place.in_front * interval_of(status)
    return {
        "url": request.url,
        "identifier": seed.identifier,
        "named": seed.source,
        "source_from": source_from,
        "belongs": reason_for_url(found, seed.source, domain),
        "seen": seen,
        "ended": None if ended is None else ended._asdict(),
        "looked_back": looked_back,
        "request": place and {"state": place.state, "in_front": place.in_front, "due_s": due},
        "excluded_by": excluded,
        "robots": robots,
        "obstacles": [reason for reason, _ in obstacles if reason],
        "due_s": due,
        "last_50_statuses": status.statuses,
        **(await _as_page(state, request.url, name) if spider == "pages" else {}),
        **row.public(),
    }


async def _as_page(state: State, url: str, source: str) -> dict[str, Any]:
    """Return when a page is revisited, and what a link to it is worth."""
    worth, why = judge(url, 1, year=datetime.now(UTC).year)
    digests = (digest(Request(url)), digest_of("sitemap", url))
    redis: Any = state.redis
    found = await redis.hmget(state.keys.revisits_of + source, digests)
    seconds, micros = await redis.time()
    revisit = None
    for line in filter(None, found):
        at, interval = map(int, line.partition(b"\n")[0].split())
        due = round((at - seconds * MICROS - micros) / MICROS, 1)
        revisit = revisit or {"due_s": due, "interval_s": interval / MICROS}
    return {"revisit": revisit, "link": {"worth": worth, "reason": why or None}}


async def _address(config: Config, url: str) -> tuple[str | None, str | None]:
    """Return what forbids connecting to the host of `url`, and why its name does not resolve."""
    resolver = Resolver(config, None)
    try:
        await resolver.look_up(url)
        return resolver.refusal(url), resolver.failure(url) or resolver.outage or None
    finally:
        await resolver.close()


async def _robots(state: State, url: str, source: str) -> dict[str, Any]:
    """Return what is known of a URL's robots.txt, without fetching it."""
    origin = robots_url(url)
    reply = await state.scripts.look_robots(None, origin, source)
    verdict: dict[str, Any] = {"verdict": "unknown", "reason": "not fetched yet"}
    match reply.what:
        case "ignore":
            verdict = {"verdict": "ignored", "reason": "its source has given permission (catalogue)"}
        case "rules":
            verdict = _by_rules(Rules.parse(reply.body), url, state.config)
        case "refused":
            verdict = {"verdict": "disallowed", "reason": reply.body.decode(errors="replace")}
        case "unreachable":
            verdict = {"verdict": "unreachable", "reason": f"cannot be fetched ({reply.reason})"}
        case "none" if reply.reason:
            why = f"could not be fetched for so long that it no longer counts ({reply.reason})"
            verdict = {"verdict": "allowed", "reason": why}
        case "none":
            why = "there is no robots.txt, or it has no rules for crawlproject"
            verdict = {"verdict": "allowed", "reason": why}
    until = None if reply.what in {"ignore", "wait"} else reply.seconds
    return {"url": origin, "line": None, "rule": None, "delay_s": None, "for_s": until, **verdict}


def _by_rules(rules: Rules, url: str, config: Config) -> dict[str, Any]:
    found = robots_txt.judge(rules, url)
    said = {"verdict": "allowed" if found.allowed else "disallowed", "delay_s": rules.delay}
    if refusal := refusal_for_opt_outs(found.opt_outs, config):
        return said | {"verdict": "disallowed", "reason": f"opt-out: {refusal}"}
    if found.line is None:
        return said | {"reason": found.reason or "no rule in it matches this URL"}
    number, text = found.line
    return said | {"reason": quoted(found.line), "line": number, "rule": printable(text)}


def _outcome(said: dict[str, Any], spider: str) -> str:
    """Return what has become of the URL; if that is not known, how far back was looked."""
    if ended := said["ended"]:
        more = ", ".join(
            text
            for text in (
                ended["status"] and f"status {ended['status']}",
                ended["thumbnail"] and f"thumbnail {printable(ended['thumbnail'], 500)}",
                ended["reason"] and printable(ended["reason"], 500),
                ended["extra"] and f"extra {printable(json.dumps(ended['extra'], ensure_ascii=False), 500)}",
            )
            if text
        )
        return f"{ended['outcome'].replace('_', ' ')} at {ended['time']}: {more}"
    if said["request"]:
        return "none yet"
    if said["seen"] and spider not in {"images", "pages"}:
        return f"not known: of the spider {spider} only dead letters are kept, neither responses nor link rot"
    back = said["looked_back"]
    *looked, last = (
        f"the {what} since {back[name]}" if back[name] else f"the {what} (there are none)"
        for name, what in _LOOKED_BACK.items()
        if name in back
    )
    waits = f", nor among the first {MOST_LOOKED_AT} requests that wait" if said["seen"] else ""
    return f"not known: not among {', '.join(looked)} or {last}{waits}"


def _request(place: dict[str, Any]) -> str:
    """Say where the request of the URL is at present."""
    match place["state"]:
        case "in_flight":
            return "in flight"
        case "delayed":
            return "waits before its next attempt"
    front = f"{counted(place['in_front'], 'request')} in front of it"
    return f"queued, {front}" if place["state"] == "queued" else f"waits beyond the window of its source, {front}"


_LOOKED_BACK = {
    "image_metadata_updates": "image events",
    "image_probes": "probes",
    "pages": "pages",
    "link_rot": "link rot",
    "dead": "dead letters",
}


def _in_words(said: dict[str, Any], opts: argparse.Namespace) -> str:
    """Return what is said of a URL, or of a source, in lines for people."""
    is_url, budget = "url" in said, said["budget"]
    lines = {}
    if is_url:
        lines["url"] = said["url"]
        if said["seen"] or opts.uuid or not (said["ended"] or said["request"]):  # else its seed has another one
            lines["identifier"] = f"{said['identifier']}, {'seen before' if said['seen'] else 'not seen yet'}"
        lines["outcome"] = _outcome(said, opts.spider)
        if said["request"]:
            lines["request"] = _request(said["request"])
        lines["source"] = f"{said['source']} (by {said['source_from']}), {said['state']}"
        lines["because"] = said["belongs"]
    else:
        lines["source"] = f"{said['source']}, {said['state']}"
        lines["crawled as"] = said["crawled_as"]
    on_disk = f" ({said['spilled']} of them spilled)" if said["spilled"] else ""
    work = f"{said['queued']} queued, {said['waiting']} waiting{on_disk}, {said['delayed']} delayed, "
    statuses = ", ".join(f"{status}: {n}" for status, n in said["last_50_statuses"].items())
    lines["rate"] = f"{said['effective_rate']:g} of {said['rate_limit']:g} requests a second: {said['reason']}"
    lines["work"] = f"{work}{said['in_flight']} in flight"
    lines["statuses"] = statuses or "none yet"
    lines["seen on"] = seen_on(said["hosts"]) or "no host in the last minutes"
    if "link" in said:
        link, revisit = said["link"], said["revisit"]
        lines["next visit"] = "none is planned" if revisit is None else f"in {duration(max(revisit['due_s'], 0))}"
        lines["as a link"] = link["worth"] + (f": {link['reason']}" if link["reason"] else "")
    if budget:
        allowed = "without bound" if budget["allowed"] is None else f"of {budget['allowed']}"
        lines["budget"] = f"{budget['admitted']} links admitted {allowed}, {budget['poor']} of them poor"
    if links := said_of_links(said["links"]):
        lines["links"] = links
    if is_url:
        robots = said["robots"]
        more = "" if robots["for_s"] is None else f" (for {duration(robots['for_s'])} more)"
        lines["robots.txt"] = f"{robots['verdict']}: {robots['reason']}{more}"
    lines["obstacles"] = "\n            ".join(said["obstacles"]) or "none"
    if is_url and (said["request"] or not (said["seen"] or said["ended"])):
        due = said["due_s"]
        never = "never, unless an obstacle above is removed"
        if said["request"] and said["robots"]["verdict"] == "disallowed":
            never = "never: it becomes a dead letter without a request, as robots.txt forbids it"
        lines["due"] = never if due is None else f"in about {duration(due)}"
    return "\n".join(f"{name + ':':<12}{value}" for name, value in lines.items())
