"""What the tests of the operators' commands share: a crawl as calls of scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest_asyncio

from crawlproject.config import CircuitRules
from crawlproject.frontier.codec import digest_of
from crawlproject.state.calls import NewRequest, Scripts, Settlement
from crawlproject.state.client import State


class Frontier:
    """A leader, and one worker `w`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.redis: Any = state.redis
        self.scripts = state.scripts
        self.fence = 0
        self.number = 0

    async def start(self) -> None:
        fence = await self.scripts.lead("leader", ready=True)
        assert fence is not None
        self.fence = fence
        for key in (self.state.keys.leader, self.state.keys.pulse):  # commands start slowly on a busy machine
            await self.redis.persist(key)
        await self.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)

    async def catalogue(self, limits: Mapping[str, float], options: Mapping[str, str] | None = None) -> None:
        """Have the leader publish rates by size."""
        rows = [(source, rate, rate) for source, rate in limits.items()]
        assert await self.scripts.set_rates(self.fence, rows, {}, options)

    async def feed(self, source: str, count: int) -> None:
        first, self.number = self.number, self.number + count
        requests = [
            NewRequest(b"\x01\x00\x00%d" % number, digest_of("", str(number)), again=False, source=source)
            for number in range(first, self.number)
        ]
        await self.scripts.enqueue("w", requests)

    async def lease(self, want: int, scripts: Scripts | None = None) -> list[str]:
        """Return the ids of up to `want` leases."""
        reply = await (scripts or self.scripts).lease("w", want, rooms={}, room=99, horizon=10.0)
        return [grant.id for grant in reply.grants]

    async def settle(
        self, source: str, statuses: list[str], rules: CircuitRules | None = None, **more: Any
    ) -> None:
        """Crawl as many requests of `source` as there are `statuses`, which count as errors but for 200."""
        scripts = Scripts(
            self.redis, self.state.keys, self.state.clock, circuit=(rules or CircuitRules()).packed()
        )
        await self.feed(source, len(statuses))
        leases: list[str] = []
        while len(leases) < len(
            statuses
        ):  # after 3 s in which nobody asked, as on a busy machine, none is given at first
            leases += await self.lease(len(statuses) - len(leases), scripts)
        done = Settlement("", source, event=("link_rot", "{}"))
        sent = [
            replace(done, id=lease, status=status, fine=status == "200", **more)
            for lease, status in zip(leases, statuses, strict=True)
        ]
        await scripts.settle("w", sent)

    async def audit(self) -> list[dict[str, Any]]:
        """Return the events of the audit trail."""
        return [json.loads(fields[b"event"]) for _, fields in await self.redis.xrange(self.state.keys.audit)]


@pytest_asyncio.fixture
async def frontier(state: State) -> Frontier:
    """A frontier with a leader and a worker."""
    one = Frontier(state)
    await one.start()
    return one
