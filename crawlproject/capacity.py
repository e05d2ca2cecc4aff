"""What a crawl of some size needs: Redis, workers, bandwidth, storage. docs/scale.md explains the figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from crawlproject.sources.rates import MINIMUM_RATE, rate_for

# Redis
PLANNED = 0.61  # of its core: readers, the monitor and rewrites of the file take their part
MOST_QUEUED = (
    2_100_000  # CRAWL_FRONTIER_HIGH_WATER, CRAWL_OVERFLOW_MAXLEN, and what `scrapy feed` puts before them
)
SEEN_BYTES = 10  # of the seen filter, for each image or link
QUEUED_BYTES = 166.5  # of a queued request
ELSEWHERE_BYTES = 300  # of a source in each of the shards that it is not in: which domains are whose
KEPT_EVENTS = 1_000_000  # CRAWL_STREAM_MAXLEN
MEMORY_FACTOR = 2.0  # while it rewrites its file or a replica synchronises, it may need twice
REDIS_GB = 64.0  # of memory of one Redis; what needs more is spread over several
SHARDS_A_MASTER = 16  # so that there may be more masters later; rounded down to a power of two
MOST_SHARDS = 256  # that CRAWL_SHARDS allows
ASKED_A_SECOND = 1 / 4 + 1 / 5  # by a worker, of each shard: whether it has a leader; and a heartbeat
ASKED_US = 95.0  # of Redis' CPU for each of these

# Workers
CORE_PLANNED = 0.7  # of each core

# Prices are assumptions: they differ by a factor of three, and change.
CORE_PRICE = 0.04  # of a core for an hour
GB_PRICE = 0.005  # of a gigabyte of memory for an hour

# Pages
PAGE_DELAY = 70.0  # CRAWL_PAGES_DELAY
LINKS = 10.0  # admitted for each page that is crawled
OVERFLOW_BYTES = 11.4  # on disk, of a link that waits

_DAY_S = 86_400
_DAY_H = 24
_GB = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What an image or a page costs, as far as it is not assumed of each crawl anew."""

    name: str
    redis_most: float  # a second that a core of one Redis carries,
    redis_planned: float  # and that are planned with
    sharded_most: float  # a second of each master of a Redis Cluster, with several shards
    source_bytes: float  # of Redis, for a source
    event_bytes: float  # as a JSON line
    worker_bytes: float  # of memory
    body_bytes: float  # as the site sends it
    kept_bytes: float  # of a thumbnail, or of a page in a WARC file
    cpu_ms: float  # of a worker


IMAGES = Kind(
    name="images",
    redis_most=3_300,
    redis_planned=2_000,
    sharded_most=2_200,
    source_bytes=336 + 1_823,  # in the catalogue, and just crawled
    event_bytes=802,
    worker_bytes=1 << 30,
    body_bytes=230_000,
    kept_bytes=37_000,
    cpu_ms=14.8,  # of 1.1 megapixels, with its thumbnail
)
PAGES = Kind(
    name="pages",
    redis_most=2_430,
    redis_planned=1_500,
    sharded_most=1_590,  # as much less as of images
    source_bytes=336 + 1_823 + 12_200,  # the last of links that wait
    event_bytes=648,
    worker_bytes=1 << 29,
    body_bytes=53_400,
    kept_bytes=11_800,
    cpu_ms=11.1,  # over TLS
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What is to be crawled, and what is assumed of it; the last three only of pages."""

    kind: Kind = IMAGES
    count: int
    rate: float  # a second
    sources: int
    body_bytes: float
    kept_bytes: float
    cpu_ms: float
    replicas: int = 1  # of each Redis
    redis_gb: float = REDIS_GB  # of each at most
    core_price: float = CORE_PRICE
    gb_price: float = GB_PRICE
    links: float = 1.0  # admitted for each that is crawled: what the seen filter has
    link_bytes: float = SEEN_BYTES
    delay: float = 0.0  # seconds between two of a source


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What it needs. Bytes are bytes, prices are those of a day."""

    days: float
    allowed_rate: float  # a second that sources of equal size bear, at their default rates
    sources_needed: int | None  # of equal size, that bear the rate; None: not even one image or page each would do
    redis_masters: int  # each of a core; above one: those of a Redis Cluster
    shards: int  # CRAWL_SHARDS
    redis_replicas: int
    redis_share: float  # of one core, of each master;
    redis_asked: float  # of it what workers ask the shards that they are not the homes of
    redis_bytes: float  # of each master and each replica, with room for a rewrite of its file
    workers: int  # processes, a core each
    worker_bytes: float  # of all
    bandwidth: float  # bits a second, from the sites
    thumbnail_bytes: float  # 0 of pages
    record_bytes: float  # of WARC files; 0 of images
    overflow_bytes: float  # of links that wait in CRAWL_OVERFLOW_STORE; 0 of images
    event_bytes: float  # as JSON lines
    cores: int
    memory_bytes: float
    price: float

    @property
    def fits(self) -> bool:
        """Whether one Redis does it."""
        return self.redis_masters == 1


def plan(demand: Demand) -> Plan:
    """Return what a demand needs."""
    kind, count = demand.kind, demand.count
    workers = math.ceil(demand.rate * demand.cpu_ms / 1000 / CORE_PLANNED)
    masters, shards = _redis(demand, workers)
    most = kind.redis_most if shards == 1 else kind.sharded_most
    asked = _asked(workers, shards) / masters
    redis_bytes = _redis_bytes(demand, shards) / masters
    servers = masters * (1 + demand.replicas)
    memory = servers * redis_bytes + workers * kind.worker_bytes
    cores = servers + workers
    kept = count * demand.kept_bytes
    return Plan(
        days=count / demand.rate / _DAY_S,
        allowed_rate=_bears(demand)(demand.sources),
        sources_needed=_sources_needed(count, demand.rate, _bears(demand)),
        redis_masters=masters,
        shards=shards,
        redis_replicas=demand.replicas,
        redis_share=demand.rate / masters / most + asked,
        redis_asked=asked,
        redis_bytes=redis_bytes,
        workers=workers,
        worker_bytes=workers * kind.worker_bytes,
        bandwidth=demand.rate * demand.body_bytes * 8,
        thumbnail_bytes=kept if kind is IMAGES else 0.0,
        record_bytes=kept if kind is PAGES else 0.0,
        overflow_bytes=count * max(demand.links - 1, 0) * OVERFLOW_BYTES,
        event_bytes=count * kind.event_bytes,
        cores=cores,
        memory_bytes=memory,
        price=_DAY_H * (cores * demand.core_price + memory / _GB * demand.gb_price),
    )


def _redis(demand: Demand, workers: int) -> tuple[int, int]:
    """Return how many masters, and how many shards.

    More shards take more of each master: workers ask each of them.
    """
    most_bytes = demand.redis_gb * _GB
    if demand.rate <= demand.kind.redis_planned and _redis_bytes(demand, 1) <= most_bytes:
        return 1, 1
    shards = 2 * SHARDS_A_MASTER
    while True:
        busy = demand.rate / demand.kind.sharded_most + _asked(workers, shards)
        needed = max(busy / PLANNED, _redis_bytes(demand, shards) / most_bytes)
        masters = max(math.ceil(needed), shards // SHARDS_A_MASTER)
        if SHARDS_A_MASTER * masters < 2 * shards or shards == MOST_SHARDS:
            return masters, shards
        shards *= 2


def _asked(workers: int, shards: int) -> float:
    """Return what workers that are not the homes of shards ask of these: of all masters, in cores of one."""
    return 0.0 if shards == 1 else workers * shards * ASKED_A_SECOND * ASKED_US / 1e6


def _redis_bytes(demand: Demand, shards: int) -> float:
    """Return what all masters have in memory, with room for rewrites."""
    links, sources = demand.count * demand.links, demand.sources
    used = links * demand.link_bytes + min(links, MOST_QUEUED) * QUEUED_BYTES
    used += sources * (demand.kind.source_bytes + (shards - 1) * ELSEWHERE_BYTES)
    used += min(demand.count, KEPT_EVENTS) * demand.kind.event_bytes
    return used * MEMORY_FACTOR


def _bears(demand: Demand) -> Callable[[int], float]:
    """Return what says how many a second some sources of equal size bear together."""
    if demand.kind is PAGES:
        return lambda sources: sources / max(demand.delay, 1 / MINIMUM_RATE)
    return lambda sources: sources * rate_for(demand.count // sources)


def _sources_needed(most: int, rate: float, bears: Callable[[int], float]) -> int | None:
    """Return how few sources of equal size bear a rate together: the more there are, the more they bear."""
    low, high = 1, most
    if bears(high) < rate:
        return None
    while low < high:
        middle = (low + high) // 2
        if bears(middle) >= rate:
            high = middle
        else:
            low = middle + 1
    return low
