"""The connection of one process to its Redis."""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry as BlockingRetry
from redis.sentinel import Sentinel as BlockingSentinel
from redis.sentinel import SentinelConnectionPool

from crawlproject.config import Config, cluster_address, project_dir, sentinel_address
from crawlproject.errors import RedisUnavailable
from crawlproject.state import embedded
from crawlproject.state.clock import RedisClock
from crawlproject.state.cluster import ShardRedis, blocking_shard
from crawlproject.state.health import Health, plain
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import Scripts

# What a call to Redis may raise when Redis is at fault, not the caller.
REDIS_TROUBLE = (redis.RedisError, OSError, TimeoutError)

# The same for the first call; TypeError: an option of REDIS_URL that the client does not know.
_CONNECT_ERRORS = (*REDIS_TROUBLE, TypeError)

_MIN_VERSION = (6, 2)
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


def connect_blocking(config: Config, timeout: float = 30.0) -> redis.Redis:
    """Return a client for commands, having checked that its server answers; an answer may take `timeout` seconds.

    Raises:
        RedisUnavailable: the server does not answer, or is too old.

    """
    url = redis_url(config)
    try:
        client: redis.Redis = _client(
            url,
            config.namespace,
            redis.Redis,
            BlockingSentinel,
            BlockingRetry(NoBackoff(), 0),
            socket_connect_timeout=5,
            socket_timeout=timeout,
            retry=None,
        )
    except ValueError as error:
        raise _unavailable(url, error) from None
    try:
        _check_server(url, client.info("server"))
    except _CONNECT_ERRORS as error:
        client.close()
        raise _unavailable(url, error) from None
    except RedisUnavailable:
        client.close()
        raise
    return client


def _client(url: str, namespace: str, client: Any, sentinel: Any, once: Any, **options: Any) -> Any:
    """Return a client for `url`, of the given classes; `once` is the retry policy for sentinels: no retries.

    On a Redis Cluster it is one for the keys of `namespace` alone, which is their hash tag.
    """
    if (cluster := cluster_address(url)) is not None:
        to_shard = blocking_shard if client is redis.Redis else ShardRedis.to
        return to_shard(cluster, namespace, **options)
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


def _without_secrets(url: str) -> str:
    """Return `url` for a message: without user and password, and without options, which may contain them."""
    return url.rpartition("@")[2].partition("?")[0]


def _unavailable(url: str, error: Exception) -> RedisUnavailable:
    where = _without_secrets(url)
    if isinstance(error, redis.ResponseError) and "HELLO" in str(error):
        return RedisUnavailable(f"Redis at {where} is older than 6.0: 6.2 or newer is needed.")
    what = plain(error)
    return RedisUnavailable(f"Redis at {where} does not answer ({what}): start it, or correct REDIS_URL.")


def _check_server(url: str, info: dict[str, object]) -> None:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _MIN_VERSION:
        raise RedisUnavailable(f"Redis at {_without_secrets(url)} is {version}: 6.2 or newer is needed.")
    if info.get("redis_mode") == "cluster" and cluster_address(url) is None:
        raise RedisUnavailable(
            f"Redis at {_without_secrets(url)} is a node of a Redis Cluster: set REDIS_URL to "
            "redis+cluster://host:port, or with TLS rediss+cluster://host:port."
        )


@dataclass(frozen=True, slots=True)
class BlockingState:
    """The connection of a command that blocks: client and key names."""

    config: Config
    redis: redis.Redis
    keys: Keys

    @classmethod
    def connect(cls, config: Config, spider: str = "images", timeout: float = 30.0) -> Self:
        """Connect to the frontier of `spider`; an answer may take `timeout` seconds.

        Raises:
            RedisUnavailable: see connect_blocking.

        """
        return cls(config, connect_blocking(config, timeout), Keys(config.namespace, spider))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.redis.close()


class State:
    """One worker's connection: client, scripts, key names, clock, and the worker's own name.

    A script may run twice, when a reply is lost and the client tries again; every script allows for that.
    """

    def __init__(self, config: Config, spider: str) -> None:
        self.config = config
        self.keys = Keys(config.namespace, spider)
        self.delay = config.delay_of(spider)  # seconds between its requests to a source, beside that source's rate
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.clock = RedisClock()
        self.health = Health()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, starting the embedded server when there is no REDIS_URL.

        Raises:
            RedisUnavailable: there is no server, or it is too old.

        """
        url = await asyncio.to_thread(redis_url, self.config)
        try:
            self.redis: Redis = _client(
                url, self.config.namespace, Redis, Sentinel, Retry(NoBackoff(), 0), **_options()
            )
        except ValueError as error:
            raise _unavailable(url, error) from None
        self.scripts = self.scripts_of(self.keys.spider)
        try:
            _check_server(url, await self.redis.info("server"))
        except _CONNECT_ERRORS as error:
            await self.close()
            raise _unavailable(url, error) from None
        except RedisUnavailable:
            await self.close()
            raise
        if isinstance(self.redis, ShardRedis):
            self._following = asyncio.create_task(self.redis.follow())
        elif sentinel_address(url):
            self._following = asyncio.create_task(self._follow_master())

    @property
    def is_shard(self) -> bool:
        """Whether this is one slot of a Redis Cluster, and users push seeds elsewhere."""
        return isinstance(self.redis, ShardRedis)

    def shard_of(self, key: str) -> ShardRedis:
        """Return a client for what is in the slot of `key`, on the same Redis Cluster."""
        address = cluster_address(self.config.redis_url or "")
        if address is None:
            raise ValueError("not on a Redis Cluster")
        return ShardRedis.to(address, key, **_options())

    def beside(self, spider: str) -> State:
        """Return the frontier of `spider`, over this connection, which remains to be closed here."""
        if spider == self.keys.spider:
            return self
        other = copy.copy(self)
        other.keys = Keys(self.config.namespace, spider)
        other.delay = self.config.delay_of(spider)
        other.scripts = self.scripts_of(spider)
        return other

    def scripts_of(self, spider: str) -> Scripts:
        """Return the scripts for the frontier of `spider`, over this connection."""
        keys = Keys(self.config.namespace, spider)
        delay = self.delay if spider == self.keys.spider else self.config.delay_of(spider)
        rules = self.config.circuit
        config = self.config
        return Scripts(
            self.redis,
            keys,
            self.clock,
            self.health,
            rules,
            delay,
            seen=config.seen,
            overflow_tail=config.overflow_tail,
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
        await self.redis.aclose()
        sentinels: Sentinel | None = getattr(self.redis.connection_pool, "sentinel_manager", None)
        if sentinels is not None:
            await sentinels.aclose()

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; the first of each fault is logged."""
        self.health.failed(error)
