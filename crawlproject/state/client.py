"""The connection of one process to its Redis."""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry as BlockingRetry
from redis.sentinel import Sentinel as BlockingSentinel
from redis.sentinel import SentinelConnectionPool

from crawlproject.config import Config, cluster_address, project_dir, sentinel_address
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.state import embedded
from crawlproject.state.clock import RedisClock
from crawlproject.state.cluster import (
    ShardRedis,
    Topology,
    address_of,
    blocking_masters,
    blocking_shard,
    topology_of,
)
from crawlproject.state.health import Health, plain, remedy_of
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import Scripts
from crawlproject.state.shards import HASH_VERSION, shard_namespace, shard_of

# What a call to Redis may raise when Redis is at fault, not the caller.
REDIS_TROUBLE = (redis.RedisError, OSError, TimeoutError)

# The same for the first call; TypeError: an option of REDIS_URL that the client does not know.
_CONNECT_ERRORS = (*REDIS_TROUBLE, TypeError)

Say = Callable[[str], None]  # what is to be told to the operator

_BlockingRedis = redis.Redis  # where a field hides the name of the module

_MIN_VERSION = (7, 0)  # Valkey says that it is Redis 7.2
_SENTINEL_TIMEOUT_S = 1.0  # for one sentinel to answer, before the next is tried

# How often sentinels are asked for the master. One that they have replaced, because it hung or was cut off, does
# not know until they tell it, ten seconds after it is back; what is written there meanwhile is lost.
_FOLLOW_EVERY_S = 1.0


def crawl_dir() -> Path:
    """Return the folder for the project's files when no other place is set."""
    return project_dir() / ".crawl"


def redis_url(config: Config) -> str:
    """Return the URL of the Redis to use, starting the embedded server if none is configured. Blocks.

    Raises:
        RedisUnavailable: no server is available.

    """
    return config.redis_url or embedded.ensure(crawl_dir())


def connect_blocking(config: Config, timeout: float = 30.0, say: Say | None = None) -> redis.Redis:
    """Return a client for commands, having checked that its server answers; an answer may take `timeout` seconds.

    On a Redis Cluster it is one for the keys of CRAWL_NAMESPACE in braces: with one shard, those of the crawl.
    With several, `say` is told where the node of these is away and another one answers.

    Raises:
        RedisUnavailable: the server does not answer, or is too old.
        ConfigError: the crawl has not as many shards as CRAWL_SHARDS says, or there is no Redis Cluster for them.

    """
    url = redis_url(config)
    try:
        client: redis.Redis = _client(
            url,
            config.namespace,
            redis.Redis,
            BlockingSentinel,
            BlockingRetry(NoBackoff(), 0),
            **_blocking_options(timeout),
        )
    except ValueError as error:
        raise _unavailable(url, error) from None
    try:
        _check_server(url, client.info("server"))
        if topology_of(client) is None:
            _check_without_cluster(config)
        else:
            keys = Keys(config.namespace, "images")
            found: Any = client.hgetall(keys.layout)
            _check_layout(config, found, config.shards > 1 and bool(client.exists(keys.fence)))
    except _CONNECT_ERRORS as error:
        client.close()
        if say is None or not _has_other_shards(config, client, timeout):
            raise _unavailable(url, error) from None
        say(_unchecked(config, error))
    except (RedisUnavailable, ConfigError):
        client.close()
        raise
    return client


def check_redis(config: Config, say: Say | None = None) -> None:
    """Check that a crawl can start: its Redis answers, and no master of it may evict keys. Blocks.

    Raises:
        RedisUnavailable: see connect_blocking.
        ConfigError: see there; or a master may evict keys, and CRAWL_REDIS_EVICTS does not accept it.

    """
    with closing(connect_blocking(config, say=say)) as client, suppress(*REDIS_TROUBLE):
        is_one = topology_of(client) is None
        for master in [client] if is_one else blocking_masters(client, **_blocking_options(5.0)):
            with closing(master), suppress(*REDIS_TROUBLE):  # of several one may be away
                policy = master.info("memory").get("maxmemory_policy", "noeviction")
                at = without_secrets(redis_url(config)) if is_one else ":".join(map(str, address_of(master) or ()))
                if policy != "noeviction" and config.redis_evicts == "refuse":
                    raise ConfigError(
                        f"Redis at {at} may evict keys of the crawl (maxmemory-policy {policy}): set it to "
                        "noeviction, or, if some may be lost, CRAWL_REDIS_EVICTS=accept"
                    )


def _has_other_shards(config: Config, client: Any, timeout: float) -> bool:
    """Tell whether a node of the Redis Cluster answers that has shards, beside that of `client`. Blocks.

    Raises:
        RedisUnavailable: it is too old.

    """
    topology = topology_of(client)
    if topology is None or config.shards == 1:
        return False
    tried = {topology.slot_of(config.namespace).owner_address}
    for number in range(config.shards):
        namespace = shard_namespace(config.namespace, number, config.shards)
        with (
            suppress(*REDIS_TROUBLE),
            closing(blocking_shard(topology, namespace, **_blocking_options(timeout))) as other,
        ):
            address = topology.slot_of(namespace).find_blocking().address
            if address not in tried:
                tried.add(address)
                _check_server(redis_url(config), other.info("server"))
                return True
    return False


def _unchecked(config: Config, error: Exception) -> str:
    return (
        f"the node that says how many shards the crawl has does not answer ({plain(error)}): whether CRAWL_SHARDS="
        f"{config.shards} is right could not be checked"
    )


def _blocking_options(timeout: float) -> dict[str, Any]:
    """Return the options of a command's connections."""
    return {"socket_connect_timeout": 5, "socket_timeout": timeout, "retry": None}


def _client(url: str, namespace: str, client: Any, sentinel: Any, once: Any, **options: Any) -> Any:
    """Return a client for `url`, of the given classes; `once` is the retry policy for sentinels: no retries.

    On a Redis Cluster it is one for the keys of `namespace` alone, which is their hash tag.
    """
    if (cluster := cluster_address(url)) is not None:
        to_shard = blocking_shard if client is redis.Redis else ShardRedis.to
        return to_shard(Topology(cluster), namespace, **options)
    address = sentinel_address(url)
    if address is None:
        return client.from_url(url, **options)
    query = {"socket_connect_timeout": _SENTINEL_TIMEOUT_S, "socket_timeout": _SENTINEL_TIMEOUT_S, "retry": once}
    query |= {**address.sentinel_credentials, **address.tls}
    sentinels = sentinel(address.sentinels, sentinel_kwargs=query)
    if sentinel is BlockingSentinel:
        options["connection_pool_class"] = _FollowingPool
    return sentinels.master_for(address.service, db=address.db, **options, **address.credentials, **address.tls)


def _options() -> dict[str, Any]:
    """Return the options of a worker's connections."""
    retry = Retry(ExponentialBackoff(cap=1, base=0.05), 2)
    return {"socket_connect_timeout": 5, "socket_timeout": 5, "retry": retry}


def _keys_of(config: Config, spider: str, number: int) -> Keys:
    """Return the keys of a shard."""
    namespace = shard_namespace(config.namespace, number, config.shards)
    return Keys(namespace, spider, config.namespace.strip("{}"))


class _FollowingPool(SentinelConnectionPool):
    """Blocking connections to the master; those to one that the sentinels have replaced are not used again."""

    _asked = 0.0

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection to the master of the last second."""
        if time.monotonic() > self._asked + _FOLLOW_EVERY_S:
            self._asked = time.monotonic()
            with suppress(*REDIS_TROUBLE):  # nobody knows another one
                self.get_master_address()  # type: ignore[no-untyped-call]
        return super().get_connection(*args, **options)


def without_secrets(url: str) -> str:
    """Return `url` for a message: without user and password, and without options, which may contain them."""
    return url.rpartition("@")[2].partition("?")[0]


def _unavailable(url: str, error: Exception) -> RedisUnavailable:
    where = without_secrets(url)
    if isinstance(error, redis.ResponseError) and "HELLO" in str(error):
        return _too_old(url, "older than 6.0")
    what, remedy = plain(error), remedy_of(error) or "start it, or correct REDIS_URL"
    return RedisUnavailable(f"Redis at {where} does not answer ({what}): {remedy}.")


def _too_old(url: str, version: str) -> RedisUnavailable:
    return RedisUnavailable(
        f"Redis at {without_secrets(url)} is {version}, and 7.0 or newer is needed: "
        "upgrade it, or run Valkey in its place."
    )


def _check_server(url: str, info: dict[str, object]) -> None:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _MIN_VERSION:
        raise _too_old(url, version)
    mode = info.get("redis_mode", info.get("server_mode"))  # as Valkey calls it
    if mode == "cluster" and cluster_address(url) is None:
        raise RedisUnavailable(
            f"Redis at {without_secrets(url)} is a node of a Redis Cluster: set REDIS_URL to "
            "redis+cluster://host:port, or with TLS rediss+cluster://host:port."
        )


def _check_without_cluster(config: Config) -> None:
    """Check that nobody wants of one Redis what only a Redis Cluster has."""
    if config.shards > 1:
        raise ConfigError(
            f"CRAWL_SHARDS={config.shards} needs a Redis Cluster: set REDIS_URL to redis+cluster://host:port, or "
            "leave CRAWL_SHARDS out"
        )
    if config.redis_wait == "all":
        raise ConfigError(
            "CRAWL_REDIS_WAIT=all needs a Redis Cluster: set REDIS_URL to redis+cluster://host:port, or leave "
            "CRAWL_REDIS_WAIT out"
        )


def _check_layout(config: Config, layout: dict[bytes, bytes], is_one_shard: bool) -> None:
    """Check that a crawl has as many shards as CRAWL_SHARDS says.

    `layout` is what is noted with it, `is_one_shard` whether there is one of a single shard in the namespace.

    Raises:
        ConfigError: it has not.

    """
    if not layout and not is_one_shard:
        return
    there = layout.get(b"shards", b"1").decode(errors="replace")
    version = layout.get(b"version", b"%d" % HASH_VERSION).decode(errors="replace")
    if there != str(config.shards):
        raise ConfigError(
            f"CRAWL_SHARDS is {config.shards} here and {there} in the crawl of CRAWL_NAMESPACE="
            f"{config.namespace.strip('{}')}: set CRAWL_SHARDS={there}, or begin a crawl in another namespace"
        )
    if version != str(HASH_VERSION):
        raise ConfigError(
            f"the crawl of CRAWL_NAMESPACE={config.namespace.strip('{}')} was begun by another version of "
            "crawlproject, which puts sources into other shards: run that one"
        )


@dataclass(frozen=True, slots=True)
class BlockingState:
    """The connection of a command that blocks: client and key names of a shard, number `number` of `count`.

    `shards` are those of the whole frontier, in order: with one this alone.
    """

    config: Config
    redis: redis.Redis
    keys: Keys
    number: int = 0
    # Shared by all; empty: this one alone.
    _shards: list[BlockingState] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def connect(
        cls, config: Config, spider: str = "images", timeout: float = 30.0, say: Say | None = None
    ) -> Self:
        """Connect to the frontier of `spider`, its first shard; an answer may take `timeout` seconds.

        `say` is told where it cannot be checked how many shards there are: then it connects all the same.

        Raises:
            RedisUnavailable, ConfigError: see connect_blocking.

        """
        client = connect_blocking(config, timeout, say)
        topology, count = topology_of(client), config.shards
        if topology is None or count == 1:
            return cls(config, client, Keys(config.namespace, spider))
        client.close()
        found: list[BlockingState] = []
        for number in range(count):
            keys = _keys_of(config, spider, number)
            one = blocking_shard(topology, keys.namespace, **_blocking_options(timeout))
            found.append(cls(config, one, keys, number, found))
        return cast("Self", found[0])

    @property
    def count(self) -> int:
        """How many shards the crawl has."""
        return self.config.shards

    @property
    def shards(self) -> tuple[BlockingState, ...]:
        """All shards of the frontier."""
        return tuple(self._shards) or (self,)

    def shard_for(self, source: str) -> BlockingState:
        """Return the shard that `source` is in."""
        return self.shards[shard_of(source, self.count)]

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the node is that its client led to last; None if unknown, or not on a Redis Cluster."""
        return address_of(self.redis)

    def client_for(self, key: str) -> _BlockingRedis:
        """Return a client for what is in the slot of `key`, on the same Redis Cluster. The caller closes it."""
        topology = topology_of(self.redis)
        if topology is None:
            raise ValueError("not on a Redis Cluster")
        return blocking_shard(topology, key, **_blocking_options(30.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shard in self.shards:
            shard.redis.close()


class State:
    """One worker's connection to a shard: client, functions, key names, clock, and the worker's own name.

    It is number `number` of `count` shards, and `shards` has all of them, in order: with one, this alone. What is
    made by its constructor is the first, which opens and closes all.

    A function may run twice, when a reply is lost and the client tries again; every one allows for that.
    """

    def __init__(self, config: Config, spider: str) -> None:
        self.config = config
        self.number = 0
        self.count = config.shards
        self.bounds = config.of_shard  # the settings, with a shard's part of what bounds the whole crawl
        self.keys = _keys_of(config, spider, 0)
        self.shards: tuple[State, ...] = (self,)
        self.delay = config.delay_of(spider)  # seconds between its requests to a source, beside that source's rate
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.clock = RedisClock()
        self.health = Health()
        self._following: asyncio.Task[None] | None = None

    async def open(self, say: Say | None = None) -> None:
        """Connect, starting the embedded server when there is no REDIS_URL.

        `say` is told where it cannot be checked how many shards there are: then it connects all the same. Without,
        it does so if a worker lives in some shard: that has checked it.

        Raises:
            RedisUnavailable: there is no server, or it is too old; or nobody knows how many shards there are.
            ConfigError: the crawl has not as many shards as CRAWL_SHARDS says, or there is no Redis Cluster for
                them.

        """
        url, unchecked = await asyncio.to_thread(redis_url, self.config), None
        try:
            self.redis: Redis = _client(
                url, self.config.namespace, Redis, Sentinel, Retry(NoBackoff(), 0), **_options()
            )
        except ValueError as error:
            raise _unavailable(url, error) from None
        self.scripts = self.scripts_of(self.keys.spider)
        try:
            _check_server(url, await self.redis.info("server"))
            if self.is_shard:
                await self.check_layout()
            else:
                _check_without_cluster(self.config)
        except _CONNECT_ERRORS as error:
            if not await asyncio.to_thread(_has_other_shards, self.config, self.redis, 5.0):
                await self.close()
                raise _unavailable(url, error) from None
            unchecked = _unchecked(self.config, error)
        except (RedisUnavailable, ConfigError):
            await self.close()
            raise
        if (topology := topology_of(self.redis)) is not None:
            self._following = asyncio.create_task(topology.follow())
            if self.count > 1:
                await self._divide(topology)
        elif sentinel_address(url):
            self._following = asyncio.create_task(self._follow_master())
        if unchecked is None:
            return
        if say is not None:
            say(unchecked)
        elif not await self.has_workers():
            await self.close()
            raise RedisUnavailable(f"{unchecked}, and no worker of it lives that knows: start that node")

    async def check_layout(self) -> None:
        """Check that the crawl has as many shards as CRAWL_SHARDS says; note it with one that is new.

        Raises:
            ConfigError: it has not.
            REDIS_TROUBLE: Redis fails.

        """
        keys = Keys(self.config.namespace, self.keys.spider)
        redis: Any = self.client_for(keys.layout) if self.is_shard else self.redis  # in none of several shards
        try:
            is_one_shard = self.count > 1 and bool(await redis.exists(keys.fence))
            _check_layout(self.config, await redis.hgetall(keys.layout), is_one_shard)
            if self.count > 1:
                await redis.hsetnx(keys.layout, "shards", self.count)  # the first one's stays
                await redis.hsetnx(keys.layout, "version", HASH_VERSION)
                _check_layout(self.config, await redis.hgetall(keys.layout), False)
        finally:
            if redis is not self.redis:
                await redis.aclose()

    async def has_workers(self) -> bool:
        """Tell whether a worker lives in some shard: it has checked how many there are, when it began."""

        async def ask(shard: State) -> bool:
            return bool(await shard.scripts.alive(timeout=self.config.heartbeat_timeout))

        found = await asyncio.gather(*map(ask, self.shards), return_exceptions=True)
        return any(answer is True for answer in found)

    async def _divide(self, topology: Topology) -> None:
        """Connect to all shards, this one being the first; they share what is known of the cluster."""
        await self.redis.aclose()
        found = [self, *(copy.copy(self) for _ in range(1, self.count))]
        for number, shard in enumerate(found):
            shard.number, shard.shards = number, tuple(found)
            shard.keys = _keys_of(self.config, self.keys.spider, number)
            shard.clock = RedisClock()
            shard._following = self._following if shard is self else None
            shard.redis = ShardRedis.to(topology, shard.keys.namespace, **_options())
            shard.scripts = shard.scripts_of(self.keys.spider)

    def shard_for(self, source: str) -> State:
        """Return the shard that `source` is in."""
        return self.shards[shard_of(source, self.count)]

    @property
    def is_shard(self) -> bool:
        """Whether this is one slot of a Redis Cluster, and users push seeds elsewhere."""
        return isinstance(self.redis, ShardRedis)

    def client_for(self, key: str) -> ShardRedis:
        """Return a client for what is in the slot of `key`, on the same Redis Cluster. The caller closes it."""
        topology = topology_of(self.redis)
        if topology is None:
            raise ValueError("not on a Redis Cluster")
        return ShardRedis.to(topology, key, **_options())

    def beside(self, spider: str) -> State:
        """Return the frontier of `spider`, over this connection, which remains to be closed here."""
        if spider == self.keys.spider:
            return self
        found = [copy.copy(shard) for shard in self.shards]
        for other in found:
            other.shards = tuple(found)
            other.keys = _keys_of(self.config, spider, other.number)
            other.delay = self.config.delay_of(spider)
            other.scripts = other.scripts_of(spider)
        return found[self.number]

    def scripts_of(self, spider: str) -> Scripts:
        """Return the functions for the frontier of `spider`, over this connection."""
        config = self.config
        return Scripts(
            self.redis,
            _keys_of(config, spider, self.number),
            self.clock,
            self.health,
            config.circuit,
            self.delay if spider == self.keys.spider else config.delay_of(spider),
            seen=self.bounds.seen,
            high_water=self.bounds.high_water,
            overflow_maxlen=self.bounds.overflow_maxlen,
            shard=(self.number, self.count),
            waits=config.redis_wait == "all",
        )

    async def _follow_master(self) -> None:
        """Use no connection again to a master that the sentinels have replaced."""
        pool: Any = self.redis.connection_pool
        known = pool.master_address
        while True:
            await asyncio.sleep(_FOLLOW_EVERY_S)
            with suppress(*REDIS_TROUBLE):  # nobody knows another one
                address = await pool.get_master_address()
                if address != known:
                    # The pool itself leaves those alone that were in use when it noticed.
                    await pool.disconnect(inuse_connections=False)
                    await pool.update_active_connections_for_reconnect()
                    known = address

    async def close(self) -> None:
        """Close all connections."""
        while self._following is not None and not self._following.done():
            self._following.cancel()  # again: on Python 3.11 the client can swallow a cancellation
            await asyncio.wait((self._following,), timeout=0.1)
        for shard in self.shards:
            await shard.redis.aclose()
        sentinels: Sentinel | None = getattr(self.redis.connection_pool, "sentinel_manager", None)
        if sentinels is not None:
            await sentinels.aclose()

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; the first of each fault is logged."""
        self.health.failed(error)
