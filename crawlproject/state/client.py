"""The connection of one process to its Redis."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from crawlproject.config import Config, cluster_address, project_dir, sentinel_address
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.politeness.outcomes import MOST_DELIVERIES
from crawlproject.state import embedded
from crawlproject.state.calls import Scripts
from crawlproject.state.clock import MICROS, RedisClock
from crawlproject.state.health import Health, plain, remedy_of
from crawlproject.state.keys import Keys
from crawlproject.state.master import client_of, master_of
from crawlproject.state.over_shards import REDIS_TROUBLE, ask_shards
from crawlproject.state.shards import shard_namespace, shard_of
from crawlproject.threads import end

__all__ = [
    "REDIS_TROUBLE",
    "State",
    "check_redis",
    "crawl_dir",
    "keys_for",
    "redis_urls",
    "unavailable",
    "without_secrets",
]

# Of the first call; TypeError: an option of REDIS_URL that the client does not know.
_CONNECT_ERRORS = (*REDIS_TROUBLE, TypeError)

_MIN_VERSION = (7, 0)  # Valkey says that it is Redis 7.2


def crawl_dir() -> Path:
    """Return the folder for the project's files when no other place is set."""
    return project_dir() / ".crawl"


def redis_urls(config: Config) -> tuple[str, ...]:
    """Return the URLs of the Redis to use, starting the embedded server if none is configured. Blocks.

    One for all shards, or one a shard.

    Raises:
        RedisUnavailable: no server is available.

    """
    return config.redis_urls or (embedded.ensure(crawl_dir()),)


def _client(url: str, namespace: str, timeout: float) -> Redis:
    """Return a client for `url` on which an answer may take `timeout` seconds.

    On a Redis Cluster it is one for the keys of `namespace` alone, which is their hash tag.

    Raises:
        ValueError: it is no such URL.

    """
    options: dict[str, Any] = {
        "socket_connect_timeout": 5,
        "socket_timeout": timeout,
        "retry": Retry(ExponentialBackoff(cap=1, base=0.05), 2),
    }
    told = cluster_address(url) or sentinel_address(url)
    return Redis.from_url(url, **options) if told is None else client_of(told, namespace, **options)


def _keys_of(config: Config, spider: str, number: int) -> Keys:
    """Return the keys of a shard."""
    namespace = shard_namespace(config.namespace, number, config.shards)
    return Keys(namespace, spider, config.namespace.strip("{}"))


def keys_for(config: Config, spider: str, source: str) -> Keys:
    """Return the keys of the shard that `source` is in."""
    return _keys_of(config, spider, shard_of(source, config.shards))


def without_secrets(url: str) -> str:
    """Return `url` for a message: without user and password, and without options, which may contain them."""
    return url.rpartition("@")[2].partition("?")[0]


def unavailable(url: str, error: Exception) -> RedisUnavailable:
    """Return the error of a start that needs the Redis at `url`, which has failed."""
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


class State:
    """One process's connection to a shard: client, functions, key names, clock, and the worker's own name.

    It is shard `number` of `count`, and `shards` has all of them, in order: with one, this alone. Of the others
    each has a client that connects when it is first used. Without `number`, and without CRAWL_SHARD, `open` takes
    the shard with the fewest living workers of `spider`; until then `number` is a guess.

    A function may run twice, when a reply is lost and the client tries again; every one allows for that.
    """

    def __init__(self, config: Config, spider: str, number: int | None = None, *, timeout: float = 5.0) -> None:
        self.config = config
        self._spider = spider
        self._candidates = (number,) if number is not None else config.shard or tuple(range(config.shards))
        self._timeout = timeout  # for an answer, in seconds
        self.count = config.shards
        self.bounds = config.of_shard  # the settings, with a shard's part of what bounds the whole crawl
        self.delay = config.delay_of(spider)  # seconds between its requests to a source, beside that source's rate
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.shards: tuple[State, ...] = (self,)
        self._following: asyncio.Task[None] | None = None
        self._be(self._candidates[0])

    def _be(self, number: int) -> None:
        """Become shard `number`, not connected so far."""
        self.number = number
        self.keys = _keys_of(self.config, self._spider, number)
        self.clock = RedisClock()
        self.health = Health()

    async def open(self, *, serves: bool = False) -> None:
        """Connect, starting the embedded server when there is no REDIS_URL.

        `serves`: this is a worker, and no other one is to choose the same shard at the same time.

        Raises:
            RedisUnavailable: there is no server, or it is too old.
            ConfigError: the crawl has not as many shards as CRAWL_SHARDS says.

        """
        urls = await asyncio.to_thread(redis_urls, self.config)
        shards = []
        try:
            for number in range(self.count):
                shard = copy.copy(self)
                shard._be(number)
                shard._connect(urls[number % len(urls)])
                shards.append(shard)
            at = urls[0]
            try:
                vars(self).update(
                    vars(await _least_served([shards[number] for number in self._candidates], serves=serves))
                )
                shards[self.number] = self
                for shard in shards:
                    shard.shards = tuple(shards)
                at = self.url
                _check_server(at, await self.redis.info("server"))
                at = urls[0]
                await self.check_layout()
            except _CONNECT_ERRORS as error:
                raise unavailable(at, error) from None
        except BaseException:
            self.shards = tuple(shards)
            await self.close()
            raise

    def _connect(self, url: str) -> None:
        """Make the client, which connects when it is first used."""
        self.url = url
        try:
            # redis-py's annotations leave open whether it answers at once
            self.redis: Any = _client(url, self.keys.namespace, self._timeout)
        except ValueError as error:
            raise unavailable(url, error) from None
        self.scripts = self.scripts_of(self._spider)
        if (master := master_of(self.redis)) is not None and master.told.service:
            self._following = asyncio.create_task(master.follow())

    async def check_layout(self) -> None:
        """Check that the crawl has as many shards as CRAWL_SHARDS says; note it with one that is new.

        It is noted once for the crawl, and with each shard: for the time that the first node is away.

        Raises:
            ConfigError: it has not.
            REDIS_TROUBLE: Redis fails.

        """
        common, redis = Keys(self.config.namespace, self._spider), cast("Any", self.redis)
        first: Any = self.client_for(common.layout)
        try:
            if self.count > 1 and not await first.exists(common.fence):
                await first.setnx(common.layout, self.count)
            there = int(await first.get(common.layout) or 1)
        except REDIS_TROUBLE:
            if self.count == 1 or not (there := int(await redis.get(self.keys.layout) or 0)):
                raise
        finally:
            await first.aclose()
        if there != self.count:
            raise ConfigError(
                f"CRAWL_SHARDS is {self.count} here and {there} in the crawl of CRAWL_NAMESPACE="
                f"{self.config.namespace.strip('{}')}: set CRAWL_SHARDS={there}, or begin a crawl in another "
                "namespace"
            )
        if self.count > 1:
            await redis.set(self.keys.layout, there)

    def shard_for(self, source: str) -> State:
        """Return the shard that `source` is in."""
        return self.shards[shard_of(source, self.count)]

    @property
    def is_shard(self) -> bool:
        """Whether the keys have a hash tag, and users push seeds to a list without it."""
        return self.count > 1 or cluster_address(self.url) is not None

    def client_for(self, key: str) -> Redis:
        """Return a client for a key that no shard's tag begins, as users write them. The caller closes it."""
        if cluster_address(self.url) is not None:
            return _client(self.url, key, self._timeout)
        return Redis(connection_pool=self.shards[0].redis.connection_pool)  # which it does not close

    async def leads(self) -> bool:
        """Tell whether this process leads its shard at present."""
        return bool(await self.redis.get(self.keys.leader) == self.worker_id.encode())

    def beside(self, spider: str) -> State:
        """Return the frontier of `spider`, over this connection, which remains to be closed here."""
        if spider == self._spider:
            return self
        found = [copy.copy(shard) for shard in self.shards]
        for other in found:
            other.shards = tuple(found)
            other._spider = spider
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
            waits=config.redis_wait == "all",
            circuit=config.circuit.packed(),
            pace=int(config.delay_of(spider) * MICROS),
            seen_capacity=self.bounds.seen_capacity,
            high_water=self.bounds.high_water,
            overflow_maxlen=self.bounds.overflow_maxlen,
            dead_maxlen=self.bounds.dead_maxlen,
            refuse_unknown=config.unknown_sources == "refuse",
            latency_backoff=config.strain,
            **({"shard": self.number, "shards": self.count} if self.count > 1 else {}),
        )

    async def workers(self) -> list[str]:
        """Return the living workers of this shard, the one that was silent for longest first."""
        return await self.scripts.alive(timeout=self.config.heartbeat_timeout)

    async def join(self, most: int) -> bool:
        """Join the workers of this shard, unless more than `most` are there; tell whether this one has."""
        timeout = self.config.heartbeat_timeout
        await self.scripts.heartbeat(self.worker_id, join=True, timeout=timeout, max_deliveries=MOST_DELIVERIES)
        if (await self.workers()).index(self.worker_id) <= most:
            return True
        await self.scripts.leave(self.worker_id)
        return False

    async def close(self) -> None:
        """Close all connections."""
        for shard in self.shards:
            if shard._following is not None:
                await end(shard._following)
            await shard.redis.aclose()

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; the first of each fault is logged."""
        self.health.failed(error)


async def _least_served(shards: Sequence[State], *, serves: bool) -> State:
    """Return the shard with the fewest workers, any one of several; those that do not answer do not count.

    Who `serves` it is one of its workers from now on; of several that come at once the later ones look again.
    """
    while len(shards) > 1:
        served, _ = await ask_shards(shards, State.workers)
        least = min(map(len, served.values()), default=0)
        shard = random.choice([one for one, there in served.items() if len(there) == least] or list(shards))
        if not serves or not served:
            return shard
        if await shard.join(least):
            return shard
    return shards[0]


async def check_redis(config: Config) -> None:
    """Check that a crawl can start: its Redis answers, and no master of it may evict keys.

    Raises:
        RedisUnavailable, ConfigError: see `State.open`.
        ConfigError: a master may evict keys.

    """
    state = State(config, "images")
    await state.open()
    found: dict[State, Any] = {}
    try:
        with suppress(*REDIS_TROUBLE):  # some may be away, or forbid the question
            found, _ = await ask_shards(state.shards, lambda shard: cast("Any", shard.redis).info("memory"))
    finally:
        await state.close()
    for shard, memory in found.items():
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise ConfigError(
                f"Redis at {without_secrets(shard.url)} may evict keys of the crawl (maxmemory-policy {policy}): "
                "set it to noeviction"
            )
