"""`scrapy explain`: what would become of a URL, and why."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from typing import Any

from scrapy import Request
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.config import Config
from crawlproject.frontier.dupefilter import SeenFilter
from crawlproject.frontier.seeds import seed_of
from crawlproject.models import IDENTIFIER
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.robots_txt import Rules, robots_url
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.status.source_status import duration, hold_reason, pause, standings, wait_of
from crawlproject.texts import printable

_MONTH = 30 * 86_400.0  # seconds without a robots.txt after which everything is allowed (look_robots.lua)


class Command(cli.Command):
    """Say which source a URL belongs to and what its status is, whether the URL was seen before, what its
    robots.txt says, what keeps it from being fetched, and when it would be due. Nothing is fetched.
    """

    arguments = "[options] URL"
    summary = "Say what would happen to a URL, and why"
    examples = ("scrapy explain https://museum.example/a.jpg",)
    spider_help = "the spider"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--source", help="the source that its seed names (default: by host)")
        parser.add_argument("--uuid", help="the uuid that its seed names (default: made from the URL)")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("expected exactly one URL")
        said = asyncio.run(self._explain(args[0], opts))
        print(json.dumps(said, indent=2) if opts.json else _for_people(said))

    async def _explain(self, url: str, opts: argparse.Namespace) -> dict[str, Any]:
        async with cli.opened_state(self, opts.spider) as state:
            return await explain(state, url, opts.source, opts.uuid)


async def explain(state: State, url: str, source: str | None = None, uuid: str | None = None) -> dict[str, Any]:
    """Return what would become of a seed with this URL now; docs/operators.md describes the keys.

    Raises:
        BadSeed: `url` or `source` is none.

    """
    seed = seed_of({"url": url, "source": source, "uuid": uuid})
    request = Request(seed.url, meta={IDENTIFIER: seed.identifier})
    redis: Any = state.redis
    keys = state.keys
    name, source_from = seed.source, "--source"
    if name is None:
        domain = domain_of_url(request.url)
        found = await redis.hget(keys.hosts, domain)
        name, source_from = (found.decode(), "catalogue") if found else (domain, "domain")
    [(standing, row)] = [pair async for pair in standings(state, [name])]
    bucket, member = SeenFilter().address(request)
    seen = bool(await redis.sismember(keys.seen_of + bucket, member))
    statuses = Counter(status.decode() for status in await redis.lrange(keys.statuses_of + name, 0, -1))
    robots = await _robots(state, request.url, name, standing.now)
    refused_address, unresolved = await _address(state.config, request.url)
    refused = state.config.unknown_sources == "refuse" and standing.by_size is None
    obstacles = [
        seen and 'seen before: without "again" its seed is a duplicate',
        refused and "the catalogue does not name its source (CRAWL_UNKNOWN_SOURCES is refuse)",
        refused_address and f"address: {refused_address}",
        unresolved and f"name: {unresolved}",
        robots["verdict"] in {"disallowed", "unreachable"} and f"robots.txt: {robots['reason']}",
        standing.limit <= 0 and "the rate of its source is 0",
        hold_reason(standing),
        await pause(state),
    ]
    wait, due = wait_of(standing), None
    if wait is not None and robots["verdict"] != "disallowed" and not refused and not refused_address:
        until_robots = robots["for_s"] if robots["verdict"] == "unreachable" else 0.0
        due = max(wait, row.next_slot_s, until_robots) + standing.queued / standing.effective
    return {
        "url": request.url,
        "identifier": seed.identifier,
        "source_from": source_from,
        "seen": seen,
        "robots": robots,
        "obstacles": [obstacle for obstacle in obstacles if obstacle],
        "due_s": due,
        "last_50_statuses": dict(statuses),
        **row._asdict(),
    }


async def _address(config: Config, url: str) -> tuple[str | None, str | None]:
    """Return what forbids to connect to the host of `url`, and why its name does not resolve."""
    resolver = Resolver(config, None)
    try:
        await resolver.look_up(url)
        return resolver.refusal(url), resolver.failure(url) or resolver.trouble or None
    finally:
        await resolver.close()


async def _robots(state: State, url: str, source: str, now: float) -> dict[str, Any]:
    """Return what is known of a URL's robots.txt, as look_robots.lua has it, without having it fetched."""
    redis: Any = state.redis
    origin = robots_url(url)
    said: dict[str, Any] = {"url": origin, "verdict": "unknown", "reason": "not fetched yet"}
    said |= {"line": None, "rule": None, "delay_s": None, "for_s": None}
    options = json.loads(await redis.hget(state.keys.options, source) or "{}")
    copy = await redis.hgetall(state.keys.robots_of + origin)

    def seconds_until(moment: bytes) -> float:
        return float(max(float(copy[moment]) / MICROS - now, 0.0))

    if options.get("robots") == "ignore":
        said |= {"verdict": "ignored", "reason": "its source has given permission (catalogue)"}
    elif copy.get(b"kind") == b"rules":
        said |= _by_rules(Rules.parse(copy[b"body"]), url, state.config) | {"for_s": seconds_until(b"until")}
    elif copy.get(b"kind") == b"refused":
        said |= {"verdict": "disallowed", "reason": copy[b"body"].decode(errors="replace")}
        said |= {"for_s": seconds_until(b"until")}
    elif b"kind" in copy:
        said |= {"verdict": "allowed", "reason": "there is none", "for_s": seconds_until(b"until")}
    elif b"since" in copy and float(copy[b"since"]) / MICROS < now - _MONTH:
        said |= {"verdict": "allowed", "reason": "not to be had for 30 days", "for_s": seconds_until(b"retry")}
    elif b"since" in copy:
        reason = f"not to be had ({copy[b'reason'].decode(errors='replace')})"
        said |= {"verdict": "unreachable", "reason": reason, "for_s": seconds_until(b"retry")}
    return said


def _by_rules(rules: Rules, url: str, config: Config) -> dict[str, Any]:
    verdict = {"verdict": "allowed" if rules.allows(url) else "disallowed", "delay_s": rules.delay}
    if config.robots_delay_over == "skip" and (rules.delay or 0) > config.robots_delay_max:
        reason = f"it asks for {rules.delay:g} s between requests, more than CRAWL_ROBOTS_DELAY_MAX"
        return verdict | {"verdict": "disallowed", "reason": reason}
    found = rules.rule_for(url)
    if found is None:
        return verdict | {"reason": "no rule of it is about this URL"}
    line, rule = found[0], printable(found[1])
    return verdict | {"reason": f"line {line}, {rule}", "line": line, "rule": rule}


def _for_people(said: dict[str, Any]) -> str:
    robots = said["robots"]
    lines = {
        "url": said["url"],
        "identifier": f"{said['identifier']}, {'seen before' if said['seen'] else 'not seen yet'}",
        "source": f"{said['source']} (by {said['source_from']}), {said['state']}",
        "rate": f"{said['effective_rate']:g} of {said['rate_limit']:g} requests a second: {said['reason']}",
        "work": f"{said['queued']} queued, {said['delayed']} delayed, {said['in_flight']} in flight",
        "statuses": ", ".join(f"{status}: {n}" for status, n in said["last_50_statuses"].items()) or "none yet",
        "robots.txt": f"{robots['verdict']}: {robots['reason']}"
        + ("" if robots["for_s"] is None else f" (for {duration(robots['for_s'])} more)"),
        "kept by": "\n            ".join(said["obstacles"]) or "nothing",
        "due": "never, as it stands" if said["due_s"] is None else f"in about {duration(said['due_s'])}",
    }
    return "\n".join(f"{name + ':':<12}{value}" for name, value in lines.items())
