"""Brings the seeds that users push to the seed list of the shard: two slots, on a Redis Cluster.

Every worker does it, at any time and beside the others. A seed is in the list of the users, in a chunk of the
outbox beside that, or in the list of the shard; a worker that ends between two steps, or a call that is lost or
comes late, neither loses nor doubles one: the functions say why.
"""

from __future__ import annotations

from redis.exceptions import ResponseError

from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import OutboxScripts

_CHUNK = 1_000  # seeds; as many as Lua unpacks at once, and well below
_WAIT_S = 1


class SeedOutbox:
    """The list that users push to, and what is on its way from there."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._keys = Keys(f"{{{state.keys.users_seeds}}}", state.keys.spider, state.keys.crawl)
        self._redis = state.client_for(self._keys.users_seeds)
        self._scripts = OutboxScripts(self._redis, self._keys, state.clock, state.health)
        self._refused = b""  # the number of the chunk that was refused last

    async def forward(self) -> None:
        """Bring a chunk to the shard; without seeds, wait a second at most for one.

        Raises:
            ResponseError: the shard refuses what comes next, because of data not written by crawlproject.

        """
        chunk = await self._scripts.send_seeds(_CHUNK)
        if chunk is None:
            users = self._keys.users_seeds
            await self._redis.blmove(users, users, _WAIT_S, "RIGHT", "RIGHT")  # nothing is moved: see seed_list.py
            return
        last = await self._state.scripts.receive_seeds(self._keys.seeds_out, chunk)
        if last == chunk.number:
            await self._scripts.ack_seeds(chunk.number)
        elif self._refused == chunk.number:  # else perhaps others were faster, and it is no longer there
            raise ResponseError(
                f"WRONGTYPE {self._state.keys.seeds_received} has a chunk that was not sent yet: remove it"
            )
        self._refused = chunk.number

    async def is_empty(self) -> bool:
        """Tell whether no seed waits here, or is on its way."""
        return not await self._redis.exists(self._keys.users_seeds, self._keys.seeds_out)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()
