"""The seen filter that a crawl had before it was divided among shards: asked before anything is stored.

Its members do not tell of which source they are, so it belongs to no shard. It lies in slots of its own, its
parts, over which its keys were spread by chance; a request is known if any of them has it. Nothing is added to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import redis

from crawlproject.state.clock import RedisClock
from crawlproject.state.cluster import ShardRedis, Topology
from crawlproject.state.health import Health, plain
from crawlproject.state.keys import Keys
from crawlproject.state.scripts.seen import SeenScripts
from crawlproject.state.shards import shard_namespace

T = TypeVar("T")

_MOST_A_CALL = 500  # requests


def part_namespace(crawl: str, number: int, parts: int) -> str:
    """Return the namespace of a part, a hash tag: `{crawl:before:0}`. `crawl` is the crawl's, without braces."""
    return shard_namespace(f"{crawl}:before", number, max(parts, 2))  # one alone needs a hash tag, too


class SeenBefore:
    """Asks the parts, all at the same time. `crawl` is the namespace of the crawl without braces."""

    def __init__(self, topology: Topology, crawl: str, health: Health, options: dict[str, Any]) -> None:
        self._topology = topology
        self._crawl = crawl
        self._health = health
        self._options = options
        self._parts: dict[tuple[str, int], list[SeenScripts]] = {}
        self._clients: dict[str, ShardRedis] = {}

    async def look(self, spider: str, parts: int, digests: Sequence[bytes]) -> list[str]:
        """Return what is known of requests: "exact", "bloom" or "" (see look_seen).

        Raises:
            redis.ConnectionError: a part does not answer.

        """
        found = [""] * len(digests)
        for first in range(0, len(digests), _MOST_A_CALL):
            some = digests[first : first + _MOST_A_CALL]
            for reply in await self._ask(spider, parts, lambda part, some=some: part.look_seen(some)):  # type: ignore[misc]
                for place, known in enumerate(reply, first):
                    if known and found[place] != "exact":
                        found[place] = known
        return found

    async def forget(self, spider: str, parts: int, digests: Sequence[bytes]) -> None:
        """Give up the places of requests.

        Raises:
            redis.ConnectionError: a part does not answer.

        """
        await self._ask(spider, parts, lambda part: part.forget_seen(digests))

    async def _ask(self, spider: str, parts: int, ask: Callable[[SeenScripts], Awaitable[T]]) -> list[T]:
        try:
            return await asyncio.gather(*(ask(part) for part in self._scripts(spider, parts)))
        except (redis.RedisError, OSError, TimeoutError) as error:
            raise redis.ConnectionError(
                f"what was seen before the crawl was divided cannot be asked for: {plain(error)}"
            ) from error

    def _scripts(self, spider: str, parts: int) -> list[SeenScripts]:
        if (spider, parts) not in self._parts:
            self._parts[spider, parts] = [
                SeenScripts(
                    self._client(namespace), Keys(namespace, spider, self._crawl), RedisClock(), self._health
                )
                for namespace in (part_namespace(self._crawl, number, parts) for number in range(parts))
            ]
        return self._parts[spider, parts]

    def _client(self, namespace: str) -> ShardRedis:
        if namespace not in self._clients:
            self._clients[namespace] = ShardRedis.to(self._topology, namespace, **self._options)
        return self._clients[namespace]

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()
