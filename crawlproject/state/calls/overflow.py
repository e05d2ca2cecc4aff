"""Functions of the overflow: its extents, and the packs of the store that they are in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from crawlproject.state.functions import Caller


class Tail(NamedTuple):
    """The head of a tail: the next extent of a source, of one priority."""

    source: str
    rank: int
    entries: list[bytes]


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
    """An extent that a source needs next, or, without a source, that was dropped: a reference to it."""

    source: str
    rank: int  # of the priority
    reference: bytes

    def place(self) -> tuple[str, int, int]:
        """Return its pack, and where it lies there: offset and length."""
        pack, offset, length, _, _ = self.reference.decode().split(":")
        return pack, int(offset), int(length)

    def is_of(self, entries: Sequence[bytes]) -> bool:
        """Tell whether these are its requests."""
        return self.reference.decode().split(":")[3:] == [digest_of(entries), str(len(entries))]


class Due(NamedTuple):
    """Answer to `overflow_take`: when that was (s, Redis' clock), the folder of the packs, what is to be done."""

    now: int
    folder: str
    wanted: list[Wanted]
    tails: list[Tail]


class OverflowScripts(Caller):
    """What moves requests between Redis and the store. The headers of the functions say what each is sure of."""

    async def overflow_take(self, *, most: int, folder: str) -> Due:
        """Return what up to `most` sources need of the store; others are not told of these for ten seconds."""
        now, kept, wanted, tails = await self._run("overflow_take", most=most, folder=folder)
        return Due(
            int(now),
            kept.decode(),
            [Wanted(name.decode(errors="surrogateescape"), *rest) for name, *rest in wanted],
            [Tail(name.decode(errors="surrogateescape"), *rest) for name, *rest in tails],
        )

    async def spill_commit(self, pack: str, began: int, extents: Sequence[Extent]) -> list[bool]:
        """Have the extents of a stored pack take the places of tails' heads; tell of each whether it did."""
        packed = [extent._asdict() for extent in extents]
        done = await self._run("spill_commit", pack=pack, began=began, extents=packed)
        return [one == 1 for one in done]

    async def take_extent(self, wanted: Wanted, entries: Sequence[bytes]) -> bool:
        """Queue the requests of an extent, or have those of a dropped one forgotten; without any it is lost.

        Return False if another worker was first.
        """
        return bool(await self._run("take_extent", **wanted._asdict(), entries=list(entries)))

    async def sweep_packs(self, names: Sequence[str]) -> list[str]:
        """Return those of the packs `names` that may be removed."""
        return [name.decode() for name in await self._run("sweep_packs", names=list(names))]
