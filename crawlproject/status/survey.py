"""Samples of a whole crawl, from all of its shards: sums where it is a sum, and what is wrong with which shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, not_answering
from crawlproject.state.scripts import Feeding, Overview, Pause
from crawlproject.state.shards import shard_of
from crawlproject.state.source_table import RateSum, count_sources
from crawlproject.status.sample import collect, most_of_shard, take_sample
from crawlproject.status.shard_status import node_of
from crawlproject.status.snapshot import CrawlSample, InFlight, Others
from crawlproject.streams.readers import MOST_READERS


class Survey:
    """Takes samples of a spider's crawl. Of a shard that does not answer, what was seen of it last counts on."""

    def __init__(self, state: State, *, unread: bool) -> None:
        self.state = state
        self._rates = {shard: RateSum(shard) for shard in state.shards}
        self._unread = unread
        self._seen: dict[State, CrawlSample] = {}
        self._known = 0  # sources, of all shards

    @property
    def most(self) -> int:
        """How many sources of each shard are read one by one: all, if there are not too many."""
        return most_of_shard(self._known, self.state.count)

    async def take(self, overview: Overview | None = None, names: Sequence[str] = ()) -> CrawlSample:
        """Return a sample; `overview` is that of the first shard, if it is known by now, `names` are sources to be
        in it in any case.

        Raises:
            REDIS_TROUBLE: no shard answers.

        """

        if self.state.count > 1 and not self._seen:
            counts, _ = await ask_shards(self.state.shards, count_sources)
            self._known = sum(counts.values())
        most = self.most

        async def look(shard: State) -> CrawlSample:
            own: Any = overview if shard is self.state else None
            if own is None:
                own = await collect(shard, must_lead=False, most=most)
            wanted = [name for name in names if state.shard_for(name) is shard]
            own = own._replace(sources=list(dict.fromkeys([*wanted, *own.sources])))
            return await take_sample(shard, own, self._rates[shard], unread=self._unread)

        state = self.state
        found, away = await ask_shards(state.shards, look)
        if state.count == 1:
            return found[state]
        self._seen |= found
        self._known = sum(sample.overview.known for sample in self._seen.values())
        if not found:
            raise not_answering(state, away[state], ", nor any other")
        nodes = {node_of(shard): sample.overview.redis_bytes for shard, sample in found.items()}
        faults = {shard.number: f"does not answer: {fault}" for shard, fault in away.items()}
        for shard, sample in found.items():
            if reason := sample.overview.pause.reason:
                faults[shard.number] = reason
        first = next(found[shard] for shard in state.shards if shard in found)
        return merged(first, {shard.number: one for shard, one in self._seen.items()}, faults, nodes, state.count)


def merged(
    first: CrawlSample,
    by_number: Mapping[int, CrawlSample],
    faults: Mapping[int, str],
    nodes: Mapping[str, int],
    count: int,
) -> CrawlSample:
    """Return one sample of those of all shards; `first` is that of the first one that has answered, `faults` what
    is wrong by shard, `nodes` the memory that each node uses, `count` the number of shards.

    Nothing goes out at all only if there is something wrong with every one of them.
    """
    samples = list(by_number.values())
    overviews = [sample.overview for sample in samples]

    def total(name: str) -> int:
        return sum(getattr(one, name) for one in overviews)

    stopped = all(number in faults for number in by_number) and first.overview.pause.reason
    feeding = [one.feeding for one in overviews]
    left = [one.left for one in feeding if one.left is not None]
    overview = first.overview._replace(
        outstanding=total("outstanding"),
        seeds=total("seeds"),
        overflow=total("overflow"),
        dead=total("dead"),
        known=total("known"),
        due=total("due"),
        ready=total("ready"),
        spilled=total("spilled"),
        fetch_us=total("fetch_us"),
        parse_us=total("parse_us"),
        alive=total("alive"),
        workers=sorted({worker for one in overviews for worker in one.workers}),
        pause=first.overview.pause if stopped else Pause("", ""),
        excluded=max(one.excluded for one in overviews),
        halted=sorted({name for one in overviews for name in one.halted}),
        halted_for_a_while=sorted({name for one in overviews for name in one.halted_for_a_while}),
        totals=dict(_sums(one.totals for one in overviews)),
        latencies=_columns(one.latencies for one in overviews),
        fetches=_columns(one.fetches for one in overviews),
        parses=_columns(one.parses for one in overviews),
        sources=list(dict.fromkeys(name for one in overviews for name in one.sources)),
        feeding=Feeding(sum(one.processes for one in feeding), sum(left) if len(left) == len(feeding) else None),
        redis_bytes=sum(nodes.values()),
    )
    others = None
    if any(sample.others for sample in samples):
        others = Others(
            sum(
                sample.others.limits
                if sample.others
                else sum(one.row.rate_limit for one in sample.sources.values())
                for sample in samples
            ),
            sum(sample.others.only_leased for sample in samples if sample.others),
        )
    unread = _sums(sample.unread for sample in samples)
    furthest = sorted(unread, key=lambda name: (-unread[name], name))[:MOST_READERS]
    return CrawlSample(
        first.time,
        first.spider,
        overview,
        InFlight(*(sum(column) for column in zip(*(sample.in_flight for sample in samples), strict=True))),
        {
            name: source
            for number, sample in by_number.items()
            for name, source in sample.sources.items()
            if shard_of(name, count) == number
        },
        others,
        {name: unread[name] for name in furthest},
        tuple(sorted(by_number)),
        dict(sorted(faults.items())),
    )


def _sums(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return found


def _columns(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))
