"""What a crawl has in Redis, seen from outside: on one server, behind sentinels, or in shards of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import redis

from crawlproject import config
from crawlproject.sinks.sink import event_of
from crawlproject.state.keys import Keys
from crawlproject.streams.streams import EventEntry
from demo.redis_servers import Shards

_ANSWER_S = 2.0  # for a server to answer the harness, which is to wake it
_REPLICATED_MS = 500  # for a replica to have the seeds that were pushed
_DERIVED = ("due", "workers", "counters", "rates", "active", "watchlist")


class Frontier(Shards):
    """The frontier of a spider, over all shards. The names of its streams are those on one Redis."""

    def __init__(self, url: str, spider: str, count: int = 1) -> None:
        settings = {"REDIS_URL": url} | ({"CRAWL_SHARDS": str(count)} if count > 1 else {})
        options = {"socket_connect_timeout": _ANSWER_S, "socket_timeout": _ANSWER_S}
        super().__init__(config.load(settings), spider, **options)
        self.names = Keys("crawl", spider)
        self._users = Keys("{crawl}", spider).users_seeds if count > 1 else ""  # beside the shards

    def answers(self) -> bool:
        """Tell whether each shard answers, perhaps from another server than before."""
        try:
            for key in (*filter(None, [self._users]), *(keys.seeds for keys in self.keys)):
                self.redis.exists(key)
        except redis.RedisError:
            return False
        return True

    def push(self, lines: Sequence[str]) -> bool:
        """Push seeds as users do; False if no replica has them yet, and they are to be pushed again."""
        if not self._users:
            self.redis.lpush(self.keys[0].seeds, *lines)
            return True
        self.redis.exists(self._users)  # which finds its master
        node = self.redis.get_redis_connection(self.redis.get_node_from_key(self._users))
        with node.pipeline(transaction=False) as pipe:
            pipe.lpush(self._users, *lines)
            pipe.execute_command("WAIT", 1, _REPLICATED_MS)
            _, replicas = pipe.execute()
        return bool(replicas)

    def _sum(self, of_shard: Callable[[Keys], int]) -> int:
        return sum(map(of_shard, self.keys))

    def outstanding(self) -> int:
        """Return how many requests have not ended."""
        return self._sum(lambda keys: int(self.redis.hget(keys.counters, "outstanding") or 0))

    def overflow(self) -> int:
        """Return how many requests wait beyond the shares of their sources."""
        return self._sum(lambda keys: int(self.redis.hget(keys.counters, "overflow") or 0))

    def _users_seeds(self) -> int:
        """Return how many seeds are in the users' list, and in the lists of shards beside it."""
        if not self._users:
            return 0
        lists = self.redis.scan_iter(f"{{{self._users}}}:{self.names.spider}:foreign*", count=1000)
        return sum(int(self.redis.llen(key)) for key in (self._users, *lists))

    def waiting(self) -> int:
        """Return how many seeds nobody has read."""
        return self._users_seeds() + self._sum(lambda keys: int(self.redis.llen(keys.seeds)))

    def is_idle(self) -> bool:
        """Tell whether no seed and no request is left."""
        return not (self.outstanding() or self.overflow() or self.waiting()) and not any(
            next(self.redis.scan_iter(f"{prefix}*", count=1000), None) is not None
            for keys in self.keys
            for prefix in (keys.processing_of, keys.foreign_of, keys.batch_of)
        )

    def delete_derived(self, rng: Random) -> None:
        """Delete a key that is derived from others, which the leader mends (crawlproject/frontier/audit.py)."""
        keys, name = rng.choice(self.keys), rng.choice(_DERIVED)
        self.redis.delete(*(keys.due if name == "due" else [getattr(keys, name)]))

    def ended(self) -> int:
        """Return how many seeds have ended."""

        def of_shard(keys: Keys) -> int:
            ends = (keys.image_events, keys.page_events, keys.link_rot_events, keys.failed_events)
            return sum(self.redis.xlen(key) for key in ends)

        return self._sum(of_shard)

    def registered(self) -> bytes:
        """Return the names of all workers, once for each shard that they serve."""
        return b" ".join(name for keys in self.keys for name in self.redis.zrange(keys.workers, 0, -1))

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return the events by stream."""
        found: dict[str, list[dict[str, Any]]] = {stream: [] for stream in self.names.streams}
        for keys in self.keys:
            for stream, own in zip(self.names.streams, keys.streams, strict=True):
                found[stream] += [
                    event_of(EventEntry(stream, at.decode(), fields)) or {}
                    for at, fields in self.redis.xrange(own)
                ]
        return found

    def left_behind(self) -> Iterator[str]:
        """Yield what an empty frontier without workers has no more."""
        if left := self._users_seeds():
            yield f"{left} seeds, or chunks of them, that users have pushed"
        for keys in self.keys:
            for name in ("outstanding", "overflow"):
                if left := int(self.redis.hget(keys.counters, name) or 0):
                    yield f"{name} of {keys.counters} is {left}"
            prefixes = (
                *(keys.leases_of, keys.processing_of, keys.queue_of, keys.overflow_of),
                *(keys.delayed_of, keys.foreign_of, keys.batch_of),
            )
            for pattern in (keys.seeds, keys.workers, *(f"{prefix}*" for prefix in prefixes)):
                for key in self.redis.scan_iter(pattern, count=1000):
                    yield f"{key.decode()} is left behind"
