"""Orders of operators that nobody reads: on a Redis Cluster, in a set whose key is without the hash tag."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.cluster import ShardRedis


class StrayOrders:
    """The operators' sets as they are called on one Redis; here each is in a slot of its own, not the crawl's."""

    def __init__(self, state: State) -> None:
        self._meant = {_without_tag(key): key for key in (state.keys.halted, state.keys.excluded)}
        self._redis: dict[str, ShardRedis] = {key: state.client_for(key) for key in self._meant}

    async def found(self) -> dict[str, str]:
        """Return the keys of those that are there, each with the key that is read in its place.

        One whose node does not answer counts as not there: the crawl goes on without it.
        """
        there: dict[str, str] = {}
        for key, client in self._redis.items():
            redis: Any = client
            with suppress(*REDIS_TROUBLE):
                if await redis.exists(key):
                    there[key] = self._meant[key]
        return there

    async def close(self) -> None:
        """Close all connections."""
        for client in self._redis.values():
            await client.aclose()


def _without_tag(key: str) -> str:
    return key.replace("{", "", 1).replace("}", "", 1)
