"""The sources in Redis: which are known, and the rates and hosts of each.

Operators and others write here, too: a name is decoded whatever it is, a rate that makes no sense counts as none.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from crawlproject.config import cluster_address
from crawlproject.sources.rates import limit_of, rate_of
from crawlproject.state.client import State

_PAGE = 1000  # names a call
_PAGES_A_LOOK = 20  # at the rates of all sources


async def known_sources(state: State) -> list[str]:
    """Return all sources of a shard that the catalogue names or that a seed has led to, sorted."""
    names = {name async for name, _ in state.redis.hscan_iter(state.keys.rates, count=_PAGE)}
    # Those of another shard have a limit here while their requests wait for it.
    return sorted(name for name in map(_text, names) if state.shard_for(name) is state)


async def scan(state: State, key: str, cursor: int) -> tuple[int, dict[str, str]]:
    """Return the cursor of the next page of a hash, and this page, perhaps empty; 0 begins and ends."""
    following, page = await state.redis.hscan(key, cursor, count=_PAGE)
    return following, {_text(name): _text(value) for name, value in page.items()}


async def unread_keys(state: State, sources: list[str]) -> dict[str, tuple[str, str]]:
    """Return keys of operators, of some sources, without what this shard's begin with: nothing reads these.

    Each with the key and the command that are meant. On a Redis Cluster, where such keys are on any node, none are
    found.
    """
    if cluster_address(state.url) is not None:
        return {}
    keys, redis = state.keys, state.redis
    meant = {keys.halted: "scrapy halt SOURCE"}
    for name in sources:
        if state.shard_for(name) is state:
            meant[keys.override_rate_of + name] = f"scrapy rate {name} RPS"
            meant[keys.statuses_of + name] = f"scrapy explain {name}"
    written = {
        before + key.removeprefix(f"{keys.namespace}:"): (key, command)
        for before in {"", f"{keys.crawl}:"} - {f"{keys.namespace}:"}  # `crawl:halted` is none with shards
        for key, command in meant.items()
    }
    try:
        if not await redis.exists(*written):
            return {}
    except NoPermissionError:  # this user of Redis may use the crawl's keys alone
        return {}
    async with redis.pipeline(transaction=False) as pipe:
        for key in written:
            pipe.exists(key)
        return {key: written[key] for key, there in zip(written, await pipe.execute(), strict=True) if there}


async def unknown_sources(state: State, sources: list[str]) -> list[str]:
    """Return those of `sources` of a shard that no seed has led to, and neither catalogue nor an order names."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for names in (state.keys.halted, state.keys.temp_halted):
            pipe.smismember(names, sources)
        for names in (state.keys.rates, state.keys.catalogue):
            pipe.hmget(names, sources)
        pipe.mget([state.keys.override_rate_of + source for source in sources])
        known = zip(sources, *await pipe.execute(), strict=True)
    return [source for source, *found in known if not any(found)]


class Stored(NamedTuple):
    """What is stored of a source, each None where there is nothing; rates in requests a second, as written.

    `row` is the catalogue's, `override` is the operator's limit, `limit` the one in force.
    """

    row: bytes | None
    override: bytes | None
    limit: bytes | None

    @property
    def by_size(self) -> float | None:
        """The rate by size."""
        return None if self.row is None else rate_of(self.row.partition(b"\t")[0])

    @property
    def options(self) -> dict[str, Any]:
        """What else the catalogue says of it."""
        options = b"" if self.row is None else self.row.rpartition(b"\t")[2]
        found: dict[str, Any] = json.loads(options) if options.startswith(b"{") else {}
        return found


async def stored(state: State, sources: list[str]) -> list[Stored]:
    """Return what is stored of each of `sources`."""
    keys = state.keys
    async with state.redis.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.catalogue, sources)
        pipe.mget([keys.override_rate_of + name for name in sources])
        pipe.hmget(keys.rates, sources)
        return [Stored(*columns) for columns in zip(*await pipe.execute(), strict=True)]


async def gone_statuses(state: State, source: str) -> frozenset[int]:
    """Return the statuses that the catalogue calls link rot at a source, beside those that are anywhere."""
    [found] = await stored(state, [source])
    return frozenset(found.options.get("gone", ()))


async def has_rates(state: State) -> bool:
    """Tell whether the last catalogue gave a rate to any source."""
    return bool(await state.redis.hlen(state.keys.catalogue))


async def count_rows(state: State) -> list[int]:
    """Return how many sources and domains of the catalogue, and how many limits, Redis holds."""
    keys = state.keys
    return [await state.redis.hlen(key) for key in (keys.catalogue, keys.hosts, keys.rates)]


async def sources_of_domains(state: State, domains: list[str]) -> list[str | None]:
    """Return the source that the catalogue gives each of `domains`, None where there is none."""
    found = await state.redis.hmget(state.keys.hosts, domains)
    return [None if source is None else _text(source) for source in found]


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


class RateSum:
    """The sum of the limits in force, of all sources (rps): too many to be read for each sample.

    The first look reads all of them, a page at a time; later ones read 20,000 each, and the sum is at most as old
    as it takes them to come round.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._sum: float | None = None
        self._cursor = 0
        self._read: list[float] = []  # the sums of the pages of this round

    async def look(self) -> float:
        """Read on, and return the sum of the last round."""
        pages = 0
        while self._sum is None or pages < _PAGES_A_LOOK:
            self._cursor, page = await self.state.redis.hscan(self.state.keys.rates, self._cursor, count=_PAGE)
            self._read.append(math.fsum(limit.rps for limit in map(limit_of, page.values()) if limit))
            pages += 1
            if self._cursor == 0:
                self._sum, self._read = math.fsum(self._read), []
                break
        return self._sum
