"""What a crawl of some size needs: Redis, workers, bandwidth, storage. docs/scale.md explains the figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crawlproject.sources.rates import rate_for

# Redis
REDIS_MOST = 3_300  # images a second that a core of it carries
REDIS_PLANNED = 2_000  # that are planned with: readers, the monitor and rewrites of the file take their part
SHARDED_MOST = 2_200  # the same of each master of a Redis Cluster, with several shards;
SHARDED_PLANNED = 1_350  # that are planned with
SEEN_BYTES = 10  # of the seen filter, for each image
QUEUED_BYTES = 166.5  # of a queued request
MOST_QUEUED = (
    2_100_000  # CRAWL_FRONTIER_HIGH_WATER, CRAWL_OVERFLOW_MAXLEN, and what `scrapy feed` puts before them
)
SOURCE_BYTES = 336 + 1_823  # of the catalogue, and of a source that was just crawled
ELSEWHERE_BYTES = 300  # of a source in each of the shards that it is not in: which domains are whose
SHARDS_A_MASTER = 16  # so that there may be more masters later
MOST_SHARDS = 256  # that CRAWL_SHARDS allows
KEPT_EVENTS = 1_000_000  # CRAWL_STREAM_MAXLEN
EVENT_BYTES = 802  # as a JSON line
MEMORY_FACTOR = 2.0  # while it rewrites its file or a replica synchronises, it may need twice

# Workers
CPU_MS = 14.8  # an image of 1.1 megapixels, with its thumbnail
CORE_PLANNED = 0.7  # of each core
WORKER_BYTES = 1 << 30

# What the sites send, and what is kept
IMAGE_BYTES = 230_000
THUMBNAIL_BYTES = 37_000

# Prices are assumptions: they differ by a factor of three, and change.
CORE_PRICE = 0.04  # of a core for an hour
GB_PRICE = 0.005  # of a gigabyte of memory for an hour

_DAY_S = 86_400
_DAY_H = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What is to be crawled, and what is assumed of it."""

    images: int
    rate: float  # images a second
    sources: int
    image_bytes: float = IMAGE_BYTES
    thumbnail_bytes: float = THUMBNAIL_BYTES
    cpu_ms: float = CPU_MS
    replicas: int = 1  # of each Redis
    core_price: float = CORE_PRICE
    gb_price: float = GB_PRICE


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What it needs. Bytes are bytes, prices are those of a day."""

    days: float
    allowed_rate: float  # images a second that sources of equal size bear, at their default rates
    sources_needed: int | None  # of equal size, that bear the rate; None: not even one image each would do
    redis_masters: int  # each of a core; above one: those of a Redis Cluster
    shards: int  # CRAWL_SHARDS
    redis_replicas: int
    redis_share: float  # of one core, of each master
    redis_bytes: float  # of each master and each replica, with room for a rewrite of its file
    workers: int  # processes, a core each
    worker_bytes: float  # of all
    bandwidth: float  # bits a second, from the sites
    thumbnail_bytes: float
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
    masters = 1 if demand.rate <= REDIS_PLANNED else math.ceil(demand.rate / SHARDED_PLANNED)
    shards = 1 if masters == 1 else min(1 << (SHARDS_A_MASTER * masters - 1).bit_length(), MOST_SHARDS)
    used = float(demand.images * SEEN_BYTES + demand.sources * (SOURCE_BYTES + (shards - 1) * ELSEWHERE_BYTES))
    used += min(demand.images, MOST_QUEUED) * QUEUED_BYTES + min(demand.images, KEPT_EVENTS) * EVENT_BYTES
    redis_bytes = used / masters * MEMORY_FACTOR
    workers = math.ceil(demand.rate * demand.cpu_ms / 1000 / CORE_PLANNED)
    servers = masters * (1 + demand.replicas)
    memory = servers * redis_bytes + workers * WORKER_BYTES
    cores = servers + workers
    return Plan(
        days=demand.images / demand.rate / _DAY_S,
        allowed_rate=demand.sources * rate_for(demand.images // demand.sources),
        sources_needed=_sources_needed(demand.images, demand.rate),
        redis_masters=masters,
        shards=shards,
        redis_replicas=demand.replicas,
        redis_share=demand.rate / masters / (REDIS_MOST if masters == 1 else SHARDED_MOST),
        redis_bytes=redis_bytes,
        workers=workers,
        worker_bytes=workers * float(WORKER_BYTES),
        bandwidth=demand.rate * demand.image_bytes * 8,
        thumbnail_bytes=demand.images * demand.thumbnail_bytes,
        event_bytes=demand.images * float(EVENT_BYTES),
        cores=cores,
        memory_bytes=memory,
        price=_DAY_H * (cores * demand.core_price + memory / 1e9 * demand.gb_price),
    )


def _sources_needed(images: int, rate: float) -> int | None:
    """Return how few sources of equal size bear a rate together: the more there are, the more they bear."""
    low, high = 1, images
    if high * rate_for(1) < rate:
        return None
    while low < high:
        middle = (low + high) // 2
        if middle * rate_for(images // middle) >= rate:
            high = middle
        else:
            low = middle + 1
    return low
