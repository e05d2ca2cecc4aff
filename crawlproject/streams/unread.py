"""How many events each reader has not read, counted piece by piece."""

from __future__ import annotations

from collections import deque
from typing import Any

from crawlproject.state.client import State
from crawlproject.streams.readers import is_behind, is_entry_id, positions_in
from crawlproject.texts import printable

MOST_READERS = 20  # those furthest behind
_PIECE = 500  # events counted a call: half a millisecond of Redis
_A_LOOK = 20_000  # events counted a look


class UnreadEvents:
    """Counts the unread events of the readers, again and again.

    A look goes on where the last one ended, and counts 20,000 events at most: behind a million it takes some
    minutes until the number is exact. Till then it is less.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._counted: dict[tuple[str, str], _Unread] = {}
        self._left = 0

    async def look(self) -> dict[str, int]:
        """Return the unread events by reader: of the 20 that are furthest behind."""
        redis: Any = self.state.redis
        places = {
            (name, stream): at if is_entry_id(at) else "0-0"
            for name, positions in positions_in(await redis.hgetall(self.state.keys.readers)).items()
            for stream, at in positions.items()
            if stream in self.state.keys.streams
        }
        self._counted = {place: self._counted.get(place, _Unread(at)) for place, at in places.items()}
        self._left = _A_LOOK
        unread: dict[str, int] = {}
        for (name, stream), at in places.items():
            counted = self._counted[name, stream]
            await self._follow(counted, stream, at)
            shown = printable(name)
            unread[shown] = unread.get(shown, 0) + counted.total
        furthest = sorted(unread, key=lambda name: (-unread[name], name))
        return {name: unread[name] for name in furthest[:MOST_READERS]}

    async def _follow(self, counted: _Unread, stream: str, at: str) -> None:
        """Leave out what has been read since, and count what has come."""
        pieces = counted.pieces
        if is_behind(at, counted.at):
            pieces.clear()
        while pieces and not is_behind(at, pieces[0][1]):
            pieces.popleft()
        if pieces and is_behind(counted.at, at):  # some of this piece are read
            pieces[0] = (await self._count(stream, at, pieces[0][1]))[0], pieces[0][1]
        counted.at = at
        count = _PIECE
        while count == _PIECE and self._left > 0:
            count, last = await self._count(stream, pieces[-1][1] if pieces else at)
            if count and pieces and pieces[-1][0] + count <= _PIECE:
                pieces[-1] = pieces[-1][0] + count, last
            elif count:
                pieces.append((count, last))

    async def _count(self, stream: str, after: str, upto: str = "+") -> tuple[int, str]:
        count, last = await self.state.scripts.count_unread(stream, after, _PIECE, upto)
        self._left -= count
        return count, last


async def count_without_reader(state: State) -> int:
    """Return the events in streams that have no reader."""
    redis: Any = state.redis
    found = positions_in(await redis.hgetall(state.keys.readers)).values()
    others = [stream for stream in state.keys.streams if not any(stream in at for at in found)]
    return sum([await redis.xlen(stream) for stream in others])


class _Unread:
    """What is unread of a stream after `at`: events counted, and the id of the last one, of each piece."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.pieces: deque[tuple[int, str]] = deque()

    @property
    def total(self) -> int:
        return sum(count for count, _ in self.pieces)
