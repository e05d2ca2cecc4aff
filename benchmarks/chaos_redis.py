"""The Redis that chaos.py and failover.py look into: one server, or a Redis Cluster with the shards of a crawl."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import redis

from benchmarks.ours import Crawl, until
from benchmarks.redis_servers import Cluster, Shards
from crawlproject import config
from crawlproject.sinks.entries import event_of
from crawlproject.state import embedded
from crawlproject.state.keys import Keys
from crawlproject.streams.streams import EventEntry

_END_S = 20.0
_ANSWER_S = 2.0  # for a node to answer the harness, which is to wake it
_REPLICATED_MS = 500  # for a replica to have the seeds that were pushed


class Servers(Protocol):
    """The Redis of a crawl: what the harness asks of it, and how it is hurt."""

    shards: Sequence[tuple[Any, Keys]]  # of each, a client and its keys
    trouble: tuple[type[Exception], ...]  # what a call may raise while a fault lasts

    def answers(self) -> bool:
        """Tell whether everything can be read now."""

    def can_be_hurt(self) -> bool:
        """Tell whether no fault lasts."""

    def push(self, lines: Sequence[str]) -> bool:
        """Push seeds as users do; False if they are to be pushed again."""

    def end(self, how: signal.Signals) -> Callable[[], None]:
        """End a server; return what starts it again, on its data."""

    def hang(self) -> Callable[[], None]:
        """Suspend a server; return what wakes it."""

    def move(self) -> bool:
        """Move what a shard has to another server; False if there is none."""

    def users_seeds(self) -> int:
        """Return how many seeds wait outside the shards."""


class Frontier:
    """What the crawl of a spider has in Redis, over all shards. Its keys are named as on one Redis."""

    def __init__(self, servers: Servers, spider: str) -> None:
        self.servers = servers
        self.keys = Keys("crawl", spider)

    def _sum(self, of_shard: Callable[[Any, Keys], int]) -> int:
        return sum(of_shard(client, keys) for client, keys in self.servers.shards)

    def outstanding(self) -> int:
        """Return how many requests have not ended."""
        return self._sum(lambda client, keys: int(client.hget(keys.counters, "outstanding") or 0))

    def overflow(self) -> int:
        """Return how many requests wait beyond the shares of their sources."""
        return self._sum(lambda client, keys: int(client.hget(keys.counters, "overflow") or 0))

    def waiting(self) -> int:
        """Return how many seeds nobody has read."""
        return self.servers.users_seeds() + self._sum(lambda client, keys: int(client.llen(keys.seeds)))

    def delete_derived(self, rng: Random) -> None:
        """Delete a key that is derived from others, which the leader mends (crawlproject/frontier/audit.py)."""
        client, keys = rng.choice(self.servers.shards)
        name = rng.choice(("due", "workers", "counters", "rates", "sources", "active", "watchlist"))
        client.delete(*(keys.due if name == "due" else [getattr(keys, name)]))

    def unread(self) -> bool:
        """Tell whether there are seeds, or requests, that are not in the frontier yet."""
        return self.waiting() > 0 or any(
            next(client.scan_iter(f"{prefix}*", count=1000), None) is not None
            for client, keys in self.servers.shards
            for prefix in (keys.processing_of, keys.foreign_of, keys.batch_of)
        )

    def ended(self) -> int:
        """Return how many seeds have ended."""

        def of_shard(client: Any, keys: Keys) -> int:
            ends = (keys.image_events, keys.page_events, keys.link_rot_events, keys.failed_events)
            return sum(client.xlen(key) for key in ends)

        return self._sum(of_shard)

    def registered(self) -> bytes:
        """Return the names of all workers."""
        return b" ".join(
            name for client, keys in self.servers.shards for name in client.zrange(keys.workers, 0, -1)
        )

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return the events by stream."""
        found: dict[str, list[dict[str, Any]]] = {stream: [] for stream in self.keys.streams}
        for client, keys in self.servers.shards:
            for stream, own in zip(self.keys.streams, keys.streams, strict=True):
                found[stream] += [
                    event_of(EventEntry(stream, at.decode(), fields)) or {} for at, fields in client.xrange(own)
                ]
        return found

    def left_behind(self) -> Iterator[str]:
        """Yield what an empty frontier without workers has no more."""
        if left := self.servers.users_seeds():
            yield f"{left} seeds, or chunks of them, that users have pushed"
        for client, keys in self.servers.shards:
            for name in ("outstanding", "overflow"):
                if left := int(client.hget(keys.counters, name) or 0):
                    yield f"{name} of {keys.counters} is {left}"
            prefixes = (
                *(keys.leases_of, keys.processing_of, keys.queue_of, keys.overflow_of),
                *(keys.delayed_of, keys.foreign_of, keys.batch_of),
            )
            for pattern in (keys.seeds, keys.workers, *(f"{prefix}*" for prefix in prefixes)):
                for key in client.scan_iter(pattern, count=1000):
                    yield f"{key.decode()} is left behind"


class OneRedis:
    """The embedded one of a crawl, with its append-only file synced as `appendfsync` says."""

    trouble: tuple[type[Exception], ...] = ()

    def __init__(self, crawl: Crawl, spider: str, appendfsync: str) -> None:
        self._home = crawl.home / "redis"
        self._redis: Any = crawl.redis
        self._appendfsync = appendfsync
        self._is_up = True
        self.shards: Sequence[tuple[Any, Keys]] = [(self._redis, Keys("crawl", spider))]
        self._redis.config_set("appendfsync", appendfsync)

    def answers(self) -> bool:
        """Tell whether no fault lasts."""
        return self._is_up

    can_be_hurt = answers

    def push(self, lines: Sequence[str]) -> bool:
        """Push seeds."""
        [(client, keys)] = self.shards
        client.lpush(keys.seeds, *lines)
        return True

    def users_seeds(self) -> int:
        """Return 0: users push to the shard."""
        return 0

    def end(self, how: signal.Signals) -> Callable[[], None]:
        """End it and wait until it has gone."""
        pid = self._redis.info("server")["process_id"]
        os.kill(pid, how)
        until("Redis has gone", _END_S, lambda: not _lives(pid))
        self._is_up = False

        def start() -> None:
            embedded.ensure(self._home)
            self._redis.config_set("appendfsync", self._appendfsync)
            self._is_up = True

        return start

    def hang(self) -> Callable[[], None]:
        """Suspend it."""
        pid = self._redis.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        self._is_up = False

        def wake() -> None:
            os.kill(pid, signal.SIGCONT)
            self._is_up = True

        return wake

    def move(self) -> bool:
        """Return False: there is no other server."""
        return False


class RedisCluster:
    """The shards of a crawl on a Redis Cluster of three masters and three replicas, which it may lose one of."""

    trouble: tuple[type[Exception], ...] = (redis.RedisError,)

    def __init__(self, cluster: Cluster, count: int, spider: str, rng: Random | None = None) -> None:
        self._cluster = cluster
        self._rng = rng or Random()
        self._is_up = True
        settings = {"REDIS_URL": cluster.url, "CRAWL_SHARDS": str(count)}
        options = {"socket_connect_timeout": _ANSWER_S, "socket_timeout": _ANSWER_S}
        self._there = Shards(config.load(settings), spider, **options)
        self.shards: Sequence[tuple[Any, Keys]] = [(self._there.redis, keys) for keys in self._there.keys]
        keys = Keys("{crawl}", spider)
        self._list = keys.users_seeds
        self._foreign = f"{{{self._list}}}:{spider}:foreign"

    def close(self) -> None:
        """End the connections."""
        self._there.redis.close()

    def answers(self) -> bool:
        """Tell whether each shard answers, perhaps from another node than before."""
        try:
            for key in (self._list, *(keys.seeds for keys in self._there.keys)):
                self._there.redis.exists(key)
        except redis.RedisError:
            return False
        return True

    def can_be_hurt(self) -> bool:
        """Tell whether all nodes are there, and each master has its replica: none more may be lost."""
        return self._is_up and self._cluster.is_whole()

    def push(self, lines: Sequence[str]) -> bool:
        """Push seeds to the users' list, and see that its replica has them."""
        users = self._there.redis
        users.exists(self._list)  # which finds its master
        node = users.get_redis_connection(users.get_node_from_key(self._list))
        with node.pipeline(transaction=False) as pipe:
            pipe.lpush(self._list, *lines)
            pipe.execute_command("WAIT", 1, _REPLICATED_MS)
            _, replicas = pipe.execute()
        return bool(replicas)

    def users_seeds(self) -> int:
        """Return how many seeds are in the users' list, and in the lists of shards beside it."""
        users = self._there.redis
        lists = list(users.scan_iter(f"{self._foreign}*", count=1000))
        return sum(int(users.llen(key)) for key in (self._list, *lists))

    def end(self, how: signal.Signals) -> Callable[[], None]:
        """End a master and wait until it has gone; its replica takes over, unless it is back before."""
        master = self._rng.choice(self._cluster.masters())
        master.process.send_signal(how)
        master.process.wait(_END_S)
        self._is_up = False

        def start() -> None:
            master.start()
            self._is_up = True

        return start

    def hang(self) -> Callable[[], None]:
        """Suspend a master; its replica takes over, unless it wakes before."""
        master = self._rng.choice(self._cluster.masters())
        master.process.send_signal(signal.SIGSTOP)
        self._is_up = False

        def wake() -> None:
            master.process.send_signal(signal.SIGCONT)
            self._is_up = True

        return wake

    def move(self) -> bool:
        """Move the slot of a shard to another master."""
        _, keys = self._rng.choice(self.shards)
        self._cluster.move_slot(keys.seeds)
        return True


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
