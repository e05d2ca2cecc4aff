"""The connection of one process to its Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from pathlib import Path

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from crawlproject.config import Config, project_dir
from crawlproject.errors import RedisUnavailable
from crawlproject.store import embedded
from crawlproject.store.clock import RedisClock
from crawlproject.store.keys import Keys
from crawlproject.store.scripts import Scripts

logger = logging.getLogger(__name__)

# What a call to Redis may raise when Redis is the trouble, and not the caller.
REDIS_TROUBLE = (redis.RedisError, OSError, TimeoutError)

# The same of the first call, and an option of REDIS_URL that the client does not know.
_FIRST_TROUBLE = (*REDIS_TROUBLE, TypeError)

_OLDEST = (6, 2)


def crawl_dir() -> Path:
    """Return the folder for what a project leaves behind when nothing else is set."""
    return project_dir() / ".crawl"


def redis_url(config: Config) -> str:
    """Return the URL of the Redis to use, with the embedded one started if it comes to that. Blocks.

    Raises:
        RedisUnavailable: there is no server to be had.

    """
    return config.redis_url or embedded.ensure(crawl_dir())


def connect_blocking(config: Config) -> redis.Redis:
    """Return a client for commands, checked to answer.

    Raises:
        RedisUnavailable: it does not, or is too old.

    """
    url = redis_url(config)
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=30, retry=None)
    except ValueError as error:
        raise _unavailable(url, error) from None
    try:
        _check_version(url, client.info("server"))
    except _FIRST_TROUBLE as error:
        client.close()
        raise _unavailable(url, error) from None
    except RedisUnavailable:
        client.close()
        raise
    return client


def _without_secrets(url: str) -> str:
    """Return `url` for a message: neither user and password nor options, which may hold them, too."""
    return url.rpartition("@")[2].partition("?")[0]


def _unavailable(url: str, error: Exception) -> RedisUnavailable:
    where = _without_secrets(url)
    if isinstance(error, redis.ResponseError) and "HELLO" in str(error):
        return RedisUnavailable(f"Redis at {where} is older than 6.0: 6.2 or newer is needed.")
    return RedisUnavailable(f"Redis at {where} does not answer ({error}): start it, or correct REDIS_URL.")


def _check_version(url: str, info: dict[str, object]) -> None:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise RedisUnavailable(f"Redis at {_without_secrets(url)} is {version}: 6.2 or newer is needed.")


class Store:
    """One worker's connection: client, scripts, key names, clock, and the worker's own name.

    Scripts may run twice when a reply is lost and the client tries again; each of them is written for it.
    """

    def __init__(self, config: Config, spider: str) -> None:
        self.config = config
        self.keys = Keys(config.namespace, spider)
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.clock = RedisClock()
        self._unreachable = False

    async def open(self) -> None:
        """Connect; starts the embedded server when there is no REDIS_URL.

        Raises:
            RedisUnavailable: there is no server, or it is too old.

        """
        url = await asyncio.to_thread(redis_url, self.config)
        try:
            self.redis = Redis.from_url(
                url,
                socket_connect_timeout=5,
                socket_timeout=5,
                retry=Retry(ExponentialBackoff(cap=1, base=0.05), 2),
            )
        except ValueError as error:
            raise _unavailable(url, error) from None
        self.scripts = Scripts(self.redis, self.keys, self.clock, self.answered, self.config.circuit)
        try:
            _check_version(url, await self.redis.info("server"))
        except _FIRST_TROUBLE as error:
            await self.close()
            raise _unavailable(url, error) from None
        except RedisUnavailable:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections."""
        await self.redis.aclose()

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; the first of a row is logged."""
        if not self._unreachable:
            self._unreachable = True
            logger.error("Redis fails, trying again until it answers: %s", error)

    def answered(self) -> None:
        """Note that a call succeeded; the first after failures is logged."""
        if self._unreachable:
            self._unreachable = False
            logger.info("Redis answers again")
