"""What waits beyond the window of a source: put there, counted, and moved to a store in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from crawlproject.frontier.discovery import Discovery, Link
from crawlproject.state.calls import Extent
from crawlproject.state.client import State
from tests.state.calls.calls import db

SITE = "museum.example"


class Store(Protocol):
    """What spills and refills in steps: `MemoryStore`, or the plug-in `overflow`."""

    def step(self) -> Awaitable[int]:
        """Do what is to be done; return how much that was."""


class MemoryStore:
    """Spills and refills what the functions say, as a store would, here."""

    def __init__(self, state: State) -> None:
        self.scripts = state.scripts
        self.packs: dict[str, list[bytes]] = {}

    async def step(self) -> int:
        """Refill what is wanted, and spill each tail as a pack of its own."""
        due = await self.scripts.overflow_take(most=50, folder="memory")
        for wanted in due.wanted:
            await self.scripts.take_extent(wanted, self.packs[wanted.place()[0]])
        for tail in due.tails:
            pack = f"{due.folder}/{due.now}-{len(self.packs)}"
            self.packs[pack] = tail.entries
            await self.scripts.spill_commit(pack, due.now, [Extent.of(tail, 0, 1)])
        return len(due.wanted) + len(due.tails)


def url(number: int, site: str = SITE) -> str:
    return f"https://{site}/{number:05}"


async def discover(state: State, count: int, site: str = SITE, first: int = 0, priority: int = 1) -> None:
    await db(state).hset(state.keys.rates, site, "0.02")
    found = await Discovery(state.scripts, state.config).admit(
        [Link(url(n, site), priority=priority) for n in range(first, first + count)]
    )
    assert found["admitted"] == count


async def counters(state: State) -> tuple[int, int, int]:
    """Return how many requests are outstanding, in the overflow, and of these in extents."""
    keys = state.keys
    values = await db(state).hmget(keys.counters, "outstanding", "overflow", "spilled")
    return tuple(int(value or 0) for value in values)  # type: ignore[return-value]


async def spilled(state: State, store: Store) -> int:
    """Spill all there is; return how many requests."""
    before = (await counters(state))[2]
    while await store.step():
        pass
    return (await counters(state))[2] - before
