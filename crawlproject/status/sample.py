"""Reads from Redis what the monitor reports, in calls of a few milliseconds each, and sums it over all shards."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any

from crawlproject.frontier import codec
from crawlproject.frontier.contents import read_leases
from crawlproject.models import utc_now
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import Pause
from crawlproject.state.client import State
from crawlproject.state.master import master_of
from crawlproject.state.over_shards import ask_shards, not_answering
from crawlproject.state.shards import shard_of
from crawlproject.state.source_table import RateSum
from crawlproject.status.snapshot import CrawlSample, InFlight, Snapshot, snapshot
from crawlproject.status.source_status import sample_sources_of_shard
from crawlproject.streams.readers import MOST_READERS, furthest_behind

MOST_SOURCES = 1000  # read one by one; of several shards, each has an equal part of that,
_LEAST_SOURCES = 20  # but so many at least
_SUMMED = (
    *("outstanding", "seeds", "overflow", "dead", "alive", "known", "due", "ready", "spilled"),
    *("halted", "halted_for_a_while", "totals"),
)  # of an Overview, over all shards


class Survey:
    """Takes samples of a spider's crawl, each compared with the one before. `latest` is the last one, `made` what
    follows from it: None before the second one.

    Of a shard that does not answer, what was seen of it last counts on. With `names` a snapshot lists only those
    sources, however many there are.
    """

    def __init__(self, state: State, names: Sequence[str] = ()) -> None:
        self.state = state
        self.names = names
        self.latest: CrawlSample | None = None
        self.made: Snapshot | None = None
        self._rates = {shard: RateSum(shard) for shard in state.shards}
        self._seen: dict[State, CrawlSample] = {}

    async def look(self) -> Snapshot | None:
        """Return what the crawl did since the last call; None at the first one.

        Raises:
            REDIS_TROUBLE: no shard answers; the next call continues from the last one that succeeded.

        """
        before, self.latest = self.latest, await self.take()
        self.made = made = None if before is None else snapshot(before, self.latest)
        if made is not None and self.names:
            specific = {name: made.specific[name] for name in self.names if name in made.specific}
            general = {**made.general, "sources_listed": len(specific)}
            self.made = replace(made, general=general, specific=specific)
        return self.made

    async def look_for(self, seconds: float) -> Snapshot:
        """Return what the crawl does during so many seconds. Raises as `look`."""
        while (made := await self.look()) is None:  # noqa: ASYNC110 - at first, or compared with other shards
            await asyncio.sleep(seconds)
        return made

    async def take(self) -> CrawlSample:
        """Return a sample.

        Raises:
            REDIS_TROUBLE: no shard answers.

        """
        state = self.state
        found, away = await ask_shards(state.shards, self._take_of)
        if state.count == 1:
            return found[state]
        if not found:
            raise not_answering(state, away[state], ", nor any other")
        self._seen |= found
        faults = {shard.number: f"does not answer: {fault}" for shard, fault in away.items()}
        faults |= {shard.number: why for shard, one in found.items() if (why := one.overview.pause.reason)}
        memory = {node_of(shard): one.overview.redis_bytes for shard, one in found.items()}
        return _merged(next(iter(found.values())), self._seen, faults, sum(memory.values()))

    async def _take_of(self, shard: State) -> CrawlSample:
        """Return the sample of a shard."""
        most = max(MOST_SOURCES // shard.count, _LEAST_SOURCES)
        overview = await shard.scripts.collect(timeout=shard.config.heartbeat_timeout, most=most)
        leases: Counter[str] = Counter()
        domains: set[str] = set()
        async for source, entry in read_leases(shard):
            leases[source] += 1
            with suppress(ValueError):  # a lease that was not written by crawlproject
                domains.add(domain_of_url(codec.url_of(entry)))
        wanted = (name for name in self.names if self.state.shard_for(name) is shard)
        names = list(dict.fromkeys([*wanted, *overview.sources]))
        sources = {one.source: one async for one in sample_sources_of_shard(shard, names, leases)}
        listed = math.fsum(one.rate_limit for one in sources.values())
        return CrawlSample(
            time=utc_now(),
            spider=shard.keys.spider,
            overview=overview,
            in_flight=InFlight(leases.total(), len(leases), len(domains - {""})),
            sources=sources,
            limits=await self._rates[shard].look() if overview.known > len(names) else listed,
            unread=await furthest_behind(shard),
        )


def _merged(
    first: CrawlSample, samples: Mapping[State, CrawlSample], faults: Mapping[int, str], redis_bytes: int
) -> CrawlSample:
    """Return one sample of those of all shards; `first` is that of the first one that has answered, `faults` what
    is wrong by shard.

    Nothing goes out at all only if there is something wrong with every one of them.
    """

    def of_all(name: str) -> list[Any]:
        return list(map(attrgetter(name), samples.values()))

    stopped = all(shard.number in faults for shard in samples) and first.overview.pause.reason
    unread = summed(of_all("unread"))
    return CrawlSample(
        time=first.time,
        spider=first.spider,
        overview=first.overview._replace(
            **{name: summed(of_all(f"overview.{name}")) for name in _SUMMED},
            pause=first.overview.pause if stopped else Pause("", ""),
            excluded=max(of_all("overview.excluded")),
            redis_bytes=redis_bytes,
        ),
        in_flight=InFlight(*summed(of_all("in_flight"))),
        sources={
            name: source
            for shard, one in samples.items()
            for name, source in one.sources.items()
            if shard_of(name, shard.count) == shard.number
        },
        limits=sum(of_all("limits")),
        unread=dict(sorted(unread.items(), key=lambda one: (-one[1], one[0]))[:MOST_READERS]),
        shards=sorted(shard.number for shard in samples),
        stopped=dict(sorted(faults.items())),
    )


def summed(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, of the columns of tuples, of counts in mappings; of lists all items, sorted."""
    match values[0]:
        case tuple():
            return tuple(map(sum, zip(*values, strict=True)))
        case list():
            return sorted({item for one in values for item in one})
        case Mapping():
            found: Counter[str] = Counter()
            for one in values:
                found.update(one)
            return dict(found)
    return sum(values)


def node_of(state: State) -> str:
    """Return where the node of a shard is, after it has answered."""
    client = state.redis
    if (master := master_of(client)) is not None:
        host, port = master.address or ("?", "?")
        return f"{host}:{port}"
    where = client.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host')}:{where.get('port', '')}".rstrip(":"))
