"""Functions of the overflow: its extents, and the packs of the store that they are in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from crawlproject.state.scripts.runner import ScriptRunner


class Tail(NamedTuple):
    """The head of a tail: the next extent of a source, of one priority."""

    source: str
    rank: int
    entries: list[bytes]


class SpillReply(NamedTuple):
    """Answer to `spill_take`: when that was (s, Redis' clock), the folder of the packs, and what makes extents."""

    now: int
    folder: str
    tails: list[Tail]


def digest_of(entries: Sequence[bytes]) -> str:
    """Return the SHA-1 of the requests of an extent, by which a tail's head and what the store has are known."""
    return hashlib.sha1(b"\n".join(entries), usedforsecurity=False).hexdigest()


class Extent(NamedTuple):
    """A tail's head in a pack: its SHA-1 (of the requests, joined by newlines), and where it lies, in bytes."""

    source: str
    rank: int
    digest: str
    offset: int
    length: int
    requests: int

    @classmethod
    def of(cls, tail: Tail, offset: int, length: int) -> Extent:
        """Return the extent of a tail that lies there."""
        return cls(tail.source, tail.rank, digest_of(tail.entries), offset, length, len(tail.entries))


class Wanted(NamedTuple):
    """An extent that a source needs next: the rank of its priority, and the reference to it."""

    source: str
    rank: int
    reference: bytes


class OverflowScripts(ScriptRunner):
    """What moves requests between Redis and the store. The headers of the functions say what each is sure of."""

    async def spill_take(self, *, most: int, folder: str, again: Sequence[str] = ()) -> SpillReply:
        """Read the heads of tails that are long enough, of up to `most` sources; nothing is taken away."""
        now, kept, *rest = await self._run("spill_take", most=most, folder=folder, again=list(again))
        tails = [
            Tail(source.decode(errors="surrogateescape"), rank, entries)
            for source, rank, entries in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        ]
        return SpillReply(int(now), kept.decode(), tails)

    async def spill_commit(self, pack: str, began: int, extents: Sequence[Extent]) -> list[bool]:
        """Have the extents of a stored pack take the places of tails' heads; tell of each whether it did."""
        packed = [extent._asdict() for extent in extents]
        done = await self._run("spill_commit", pack=pack, began=began, extents=packed)
        return [one == 1 for one in done]

    async def refill_take(self, *, most: int) -> list[Wanted]:
        """Return the extents that up to `most` sources need next."""
        flat = await self._run("refill_take", most=most)
        return [
            Wanted(source.decode(errors="surrogateescape"), rank, reference)
            for source, rank, reference in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        ]

    async def refill_commit(self, wanted: Wanted, entries: Sequence[bytes], *, high_water: int) -> bool:
        """Queue the requests of an extent; without any it is lost, and counted. False: another worker was first.

        `high_water`: what the sources' shares are parts of.
        """
        source, rank, reference = wanted
        return bool(
            await self._run(
                "refill_commit",
                source=source,
                rank=rank,
                reference=reference,
                entries=list(entries),
                high_water=high_water,
            )
        )

    async def drop_extent(self, reference: bytes, entries: Sequence[bytes]) -> bool:
        """Put the requests of an extent that was dropped to those whose seen places are given up."""
        return bool(await self._run("drop_extent", reference=reference, entries=list(entries)))

    async def sweep_packs(self, names: Sequence[str], removed: Sequence[str] = ()) -> list[str]:
        """Return those of the packs `names` that may be removed; `removed` are gone since an earlier call."""
        return [name.decode() for name in await self._run("sweep_packs", names=list(names), removed=list(removed))]
