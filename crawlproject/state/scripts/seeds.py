"""The way of seeds from the slot that users push to into that of the shard, on a Redis Cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crawlproject.state.scripts.runner import ScriptRunner


class Chunk(NamedTuple):
    """Seeds on their way."""

    number: bytes
    seeds: Sequence[bytes]


class OutboxScripts(ScriptRunner):
    """What is called where users push seeds."""

    async def send_seeds(self, count: int, size: int = 1_000_000) -> Chunk | None:
        """Return the chunk that comes next, which a replica has, too; None without seeds.

        A new one has `count` seeds at most, and with `size` bytes no further one.
        """
        number, *seeds = await self._run_replicated("send_seeds", count=count, size=size) or [b""]
        return Chunk(number, seeds) if seeds else None

    async def ack_seeds(self, number: bytes) -> None:
        """Forget a chunk that the shard has."""
        await self._run("ack_seeds", number=number)


class SeedScripts(ScriptRunner):
    """What is called at the shard."""

    async def receive_seeds(self, outbox: str, chunk: Chunk) -> bytes:
        """Put the seeds of a chunk into the seed list, unless it was taken before; a replica has them, too.

        Return the number of the last chunk that was taken.
        """
        last: bytes = await self._run_replicated(
            "receive_seeds", outbox=outbox, number=chunk.number, seeds=chunk.seeds
        )
        return last
