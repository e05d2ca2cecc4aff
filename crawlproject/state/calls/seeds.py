"""What waits for another shard, and the seeds that users push where it is not known yet for which."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError

from crawlproject.state.functions import Caller

_TURN_MS = 3_000  # that the turn of a worker that forwards lasts
_BATCH_BYTES = 1_000_000  # beyond which no further entry is taken: Redis would be held for too long


class Batch(NamedTuple):
    """Entries for another shard, packed, and the name that this shard knows them by when it has taken them."""

    name: bytes
    entries: Sequence[bytes]


class ForwardingScripts(Caller):
    """What is called where entries wait for other shards, and at these."""

    async def waiting(self, worker: str) -> list[int]:
        """Return the shards for which something waits; none while it is another worker's turn to forward it.

        To forward the same twice does no harm; the turns save the work.
        """
        keys = self._known
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.get(keys.forwarder)
            for number in range(self._shards):
                pipe.exists(f"{keys.foreign_of}{number}", f"{keys.batch_of}{number}")
            whose, *waits = await pipe.execute()
        found = [number for number, is_waiting in enumerate(waits) if is_waiting]
        if whose not in (None, worker.encode()):
            return []
        if found:
            with suppress(OutOfMemoryError):  # what waits is what fills the memory: it goes without a turn
                await self._redis.set(keys.forwarder, worker, px=_TURN_MS)
        return found

    async def batch(self, to: int, *, count: int, size: int = _BATCH_BYTES) -> Batch | None:
        """Return what shard `to` is to be given next, the same until it is forgotten; a replica has it, too.

        A new batch has `count` entries at most, and with `size` bytes no further one. None if nothing waits.
        """
        name, *entries = await self._run(
            "batch", True, to=to, name=secrets.token_hex(8), count=count, size=size
        ) or [b""]
        return Batch(name, entries) if entries else None

    async def forget_batch(self, to: int, batch: Batch) -> None:
        """Forget a batch that shard `to` has."""
        await self._run("batch", to=to, taken=batch.name)

    async def receive(self, origin: str, batch: Batch) -> bool:
        """Take the seeds and requests of a batch, once; a replica has them, too.

        `origin` is the number of the shard that it comes from, or `users`. False if nothing was done, for want of
        a pulse.
        """
        return bool(await self._run("receive", True, origin=origin, batch=batch.name, entries=list(batch.entries)))


class UsersSeedsScripts(ForwardingScripts):
    """What is called where users push seeds."""

    async def peek_seeds(self, worker: str, count: int, size: int = _BATCH_BYTES) -> list[bytes]:
        """Return the seeds that come next, which stay where they are; none while another worker divides them."""
        seeds: list[bytes] = await self._run("split_seeds", worker=worker, ttl=_TURN_MS, count=count, size=size)
        return seeds

    async def split_seeds(self, seeds: Sequence[bytes], to: Sequence[int]) -> bool:
        """Have seeds wait for their shards; False if others come next by now, or a shard's list is full."""
        digest = hashlib.sha1(b"\n".join(seeds), usedforsecurity=False).hexdigest()
        return bool(await self._run("split_seeds", digest=digest, to=list(to), size=_BATCH_BYTES))
