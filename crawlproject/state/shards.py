"""Which shard of a crawl a source is in, and where a shard's keys are: CRAWL_SHARDS, on a Redis Cluster."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from itertools import count

from redis.crc import key_slot

SLOTS = 16_384  # of a Redis Cluster


class SourceElsewhere(Exception):
    """What was asked of a shard is of `source`, which is in another one."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source


@lru_cache(maxsize=65_536)
def shard_of(source: str, shards: int) -> int:
    """Return the number of the shard, from 0, that a source is in; the Lua module `shards` says the same."""
    if shards == 1:
        return 0
    digest = hashlib.sha1(source.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16) % shards


@cache
def shard_namespace(namespace: str, number: int, shards: int) -> str:
    """Return the namespace of a shard: `namespace` itself where there is one, else a hash tag, as `{crawl:3}`.

    The slot of the tag is in the part of the cluster's slots that has the same number: so each master of a cluster
    whose slots are divided evenly has as many shards. Where that of `crawl:3` is elsewhere, it is `crawl:3.1`, or
    the first such name that fits.
    """
    if shards == 1:
        return namespace
    name = f"{namespace.strip('{}')}:{number}"
    tags = (name if again == 0 else f"{name}.{again}" for again in count())
    return next(f"{{{tag}}}" for tag in tags if key_slot(tag.encode()) * shards // SLOTS == number)
