"""The ways between slots of a Redis Cluster: of seeds from where users push them, and between shards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crawlproject.state.scripts.runner import ScriptRunner

_TURN_MS = 3_000  # that the turn of a worker that carries lasts
_CHUNK_BYTES = 1_000_000  # beyond which no further seed or request is taken: Redis would be held for too long


class Chunk(NamedTuple):
    """Seeds on their way; their number says which server has given it."""

    number: bytes
    seeds: Sequence[bytes]


class CarrierScripts(ScriptRunner):
    """What is called where outboxes are: in shards, and where users push seeds if there are several."""

    async def waiting(self, worker: str) -> list[int]:
        """Return the shards to which something is on its way; none while another worker carries it."""
        found: list[int] = await self._run("waiting", worker=worker, ttl=_TURN_MS)
        return found

    async def offer(self, to: int, *, count: int, size: int = _CHUNK_BYTES) -> list[bytes]:
        """Return what is next on its way to shard `to`, packed; a replica has it, too.

        It is `count` seeds and requests at most, and with `size` bytes no further one.
        """
        items: list[bytes] = await self._run_replicated("offer", to=to, count=count, size=size)
        return items

    async def forget_sent(self, to: int, taken: Mapping[str, int]) -> None:
        """Forget what shard `to` has, as `receive` has said there."""
        await self._run("forget_sent", to=to, taken=dict(taken))

    async def receive(
        self, outbox: str, items: Sequence[bytes], *, high_water: int, refuse_unknown: bool
    ) -> dict[str, int]:
        """Take what `offer` has returned of an outbox, each once; a replica has it, too.

        Return the number of the last one that was taken, by the server that has numbered it; {} if nothing was
        done, for want of a pulse.
        """
        taken: list[bytes] = await self._run_replicated(
            "receive", **{"from": outbox}, items=list(items), high_water=high_water, refuse_unknown=refuse_unknown
        )
        return {
            server.decode(errors="replace"): int(last)
            for server, last in zip(taken[::2], taken[1::2], strict=True)
        }

    async def send_found(
        self, to: int, kind: str, body: bytes, *, count: int, most: int | None, ways: int = 1
    ) -> bool:
        """Send `count` links or requests that were found on pages to shard `to`; a replica has them, too.

        `ways`: how many they have come then. False, and nothing is done, if with them more than `most` would be on
        their way from here.
        """
        arguments = {"to": to, "kind": kind, "body": body, "count": count, "most": most, "ways": ways}
        return bool(await self._run_replicated("send_found", **arguments))


class OutboxScripts(CarrierScripts):
    """What is called where users push seeds."""

    async def peek_seeds(self, worker: str, count: int, size: int = _CHUNK_BYTES) -> list[bytes]:
        """Return the seeds that come next, which stay where they are; none while another worker divides them."""
        seeds: list[bytes] = await self._run("peek_seeds", worker=worker, ttl=_TURN_MS, count=count, size=size)
        return seeds

    async def split_seeds(self, seeds: Sequence[bytes], to: Sequence[int]) -> bool:
        """Move seeds into the outboxes to their shards; False if others come next by now."""
        digest = hashlib.sha1(b"\n".join(seeds), usedforsecurity=False).hexdigest()
        return bool(await self._run("split_seeds", digest=digest, to=list(to), size=_CHUNK_BYTES))

    async def send_seeds(self, count: int, size: int = _CHUNK_BYTES) -> Chunk | None:
        """Return the chunk that comes next, which a replica has, too; None without seeds.

        A new one has `count` seeds at most, and with `size` bytes no further one.
        """
        number, *seeds = await self._run_replicated("send_seeds", count=count, size=size) or [b""]
        return Chunk(number, seeds) if seeds else None

    async def ack_seeds(self, number: bytes) -> None:
        """Forget a chunk that the shard has."""
        await self._run("ack_seeds", number=number)


class SeedScripts(CarrierScripts):
    """What is called at the shard."""

    async def receive_seeds(self, outbox: str, chunk: Chunk) -> bytes:
        """Put the seeds of a chunk into the seed list, unless it was taken before; a replica has them, too.

        Return the number of the last chunk that was taken, of those that the same server has numbered.
        """
        last: bytes = await self._run_replicated(
            "receive_seeds", outbox=outbox, number=chunk.number, seeds=chunk.seeds
        )
        return last
