"""The crawl's time in Redis, for tests of its functions: it stands still until a test lets it pass."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State

US = 1_000_000


class StandingClock:
    """A day ahead of the server's clock, which Redis waits for (see the Lua module `clock`)."""

    def __init__(self, state: State, now: int) -> None:
        self.began = self.now = now  # µs
        self._redis: Any = state.redis
        self._key = state.keys.clock

    @classmethod
    async def of(cls, state: State) -> StandingClock:
        redis: Any = state.redis
        seconds, _ = await redis.time()
        return cls(state, (seconds + 86_400) * US)

    def advance(self, seconds: float) -> None:
        """Let so much time pass before the next function."""
        self.now += round(seconds * US)

    def local(self) -> float:
        """Return what a worker's own clock shows (s), if it stands still as well."""
        return 1000.0 + (self.now - self.began) / US

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.advance(seconds)

    async def set(self) -> None:
        """Set the clock of Redis: a lease lets it run on from there."""
        await self._redis.hset(self._key, mapping={"seen": self.now, "ahead": 0, "resume": 0})
