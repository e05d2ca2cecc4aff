"""Functions of the whole crawl: who leads, what is kept within bounds, what the monitor collects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from crawlproject.state.calls.frontier import HISTOGRAMS
from crawlproject.state.clock import MICROS
from crawlproject.state.functions import Caller

LEADER_TTL_S = 5.0  # that the lead and the pulse outlive their last renewal


class Pause(NamedTuple):
    """Why no requests go out, see the Lua module `pause`; `reason` is a sentence. Both are "" when they go out."""

    kind: str
    reason: str


def histogram(totals: Mapping[str, int], name: str) -> list[int]:
    """Return one of `HISTOGRAMS` out of the totals of all sources."""
    return [totals.get(f"{name}:{number}", 0) for number in range(len(HISTOGRAMS[name]) + 1)]


class Overview(NamedTuple):
    """Answer to `collect`: see collect.lua. `now` is on Redis' clock, in seconds."""

    now: float
    outstanding: int
    seeds: int
    overflow: int
    dead: int
    alive: int
    pause: Pause
    known: int
    due: int
    excluded: int
    halted: list[str]
    halted_for_a_while: list[str]
    totals: dict[str, int]
    sources: list[str]
    ready: int
    redis_bytes: int
    spilled: int


class CrawlScripts(Caller):
    """What the leader does, and what tells how the crawl is going."""

    async def lead(self, worker: str, *, ready: bool) -> int | None:
        """Take or renew the lead, with its pulse if `ready`; return the fence, None when another leads."""
        leads, fence = await self._run("lead", worker=worker, ttl=int(LEADER_TTL_S * 1000), ready=ready)
        return int(fence) if leads else None

    async def resign(self, worker: str) -> None:
        """Give up the lead, if `worker` has it."""
        await self._run("lead", worker=worker, release=True)

    async def trim(self, fence: int, *, maxlen: int, drop: bool = False) -> tuple[str, int]:
        """Bound streams and slots; return the reason of a pause, or "", and how many events `drop` has cost."""
        ttl = int(LEADER_TTL_S * 1000)
        reason, dropped = await self._run("trim", fence=fence, maxlen=maxlen, drop=drop, ttl=ttl)
        return reason.decode(errors="replace"), int(dropped)

    async def pause_reason(self, *, timeout: float) -> Pause:
        """Return why nothing goes out of any source; see the Lua module `pause`."""
        return (await self.collect(timeout=timeout, most=1)).pause

    async def collect(self, *, timeout: float, most: int) -> Overview:
        """Read what all sources share, and which `most` sources to look at; see collect.lua."""
        reply = await self._run("collect", timeout=int(timeout * MICROS), most=most)
        found: dict[str, Any] = msgpack.unpackb(reply, unicode_errors="replace")
        found |= {"halted": sorted(found["halted"]), "halted_for_a_while": sorted(found["halted_for_a_while"])}
        return Overview(
            **found
            | {
                "now": found["now"] / MICROS,
                "pause": Pause(*found["pause"]),
                "totals": dict(found["totals"]),
            }
        )
