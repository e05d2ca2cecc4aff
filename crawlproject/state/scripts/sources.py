"""Scripts of the sources: send slots, rates, circuits, robots.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crawlproject.models import Slot
from crawlproject.state.clock import MICROS
from crawlproject.state.scripts.runner import ScriptRunner


class SourceStatus(NamedTuple):
    """What a source may do at present, and why: rates in requests a second, times on Redis' clock in seconds.

    `limit` is the rate in force, `by_size` the catalogue's, `override` the operator's as it is written;
    `effective` is what is left of the limit by `factor` (for the reason `why`) and by `robots_delay`
    (seconds). `held_until` is 0 when nothing holds it. `waiting` are requests beyond its share of the frontier.
    """

    source: str
    limit: float
    by_size: float | None
    override: bytes | None
    effective: float
    state: str
    held_until: float
    now: float
    factor: float
    why: str
    robots_delay: float | None
    queued: int
    delayed: int
    next_slot: float
    generation: int
    probing: int
    waiting: int


class RobotsReply(NamedTuple):
    """Answer to `look_robots`: see look_robots.lua."""

    what: str
    body: bytes
    seconds: float
    reason: str
    slower: bool


class SourceScripts(ScriptRunner):
    """How fast each source may be crawled, and what holds it back."""

    async def acquire(
        self, *, source: str | None = None, domain: str | None = None, fetch_lock: str | None = None
    ) -> Slot | None:
        """Reserve the next send slot for a request without a lease and return it.

        None when there is none to be had at present: no pulse, or a rate of 0. The lock on fetching the robots.txt
        of the origin `fetch_lock` is made to last a minute longer than the slot is ahead.
        """
        target = {"source": source} if source is not None else {"domain": domain}
        if fetch_lock is not None:
            target["fetch_lock"] = fetch_lock
        ran, slot, payer, rate = await self._run("acquire", **target)
        self._observe(ran)
        if not slot:
            return None
        return Slot(payer.decode(errors="surrogateescape"), self._clock.local(int(slot)), int(slot), float(rate))

    async def renew(
        self, slot: Slot, *, within: float, worker: str | None = None, lease: str | None = None
    ) -> Slot | None:
        """Exchange a slot that was missed for one at most `within` seconds ahead.

        None when there is none so soon, or nothing may go out: no pulse, a rate of 0, a source that is halted or
        held, or has changed its state since. The request has the lease `lease` of `worker`, or none.
        """
        ran, moment, rate = await self._run(
            "renew",
            source=slot.source,
            missed=slot.at,
            rate=slot.rate,
            within=int(within * MICROS),
            worker=worker,
            lease=lease,
        )
        self._observe(ran)
        return Slot(slot.source, self._clock.local(int(moment)), int(moment), float(rate)) if moment else None

    async def confirm(self, *, source: str | None = None, domain: str | None = None) -> bool:
        """Tell whether a slot that was reserved a while ago may still be used: nothing was halted since."""
        target = {"source": source} if source is not None else {"domain": domain}
        return bool(await self._run("confirm", **target))

    async def set_rates(
        self,
        fence: int,
        rates: Sequence[tuple[str, float, float | None]],
        hosts: Mapping[str, str],
        options: Mapping[str, str] | None = None,
    ) -> bool:
        """Write rates (source, in force, by size if the catalogue has it) and hosts.

        With `options` (source to JSON), those of the sources in `rates` become what stands there, or none.
        False when another leads by now.
        """
        rows = [
            [source, repr(in_force), "" if by_size is None else repr(by_size)]
            + ([] if options is None else [options.get(source, "")])
            for source, in_force, by_size in rates
        ]
        return bool(await self._run("set_rates", fence=fence, rates=rows, hosts=dict(hosts)))

    async def forget(self, fence: int, sources: Sequence[str], domains: Sequence[str]) -> bool:
        """Take sources and domains out of the catalogue's part; False when another leads by now."""
        return bool(await self._run("forget", fence=fence, sources=list(sources), domains=list(domains)))

    async def watch(self, fence: int) -> list[tuple[str, str]]:
        """Look at the sources on the watchlist; return which were halted, resumed or are probed, for the log."""
        reply = await self._run("watch", fence=fence)
        words = [word.decode(errors="replace") for word in reply]
        return list(zip(words[::2], words[1::2], strict=True))

    async def inspect(self, sources: Sequence[str]) -> list[SourceStatus]:
        """Return the status of each of `sources`."""
        rows = await self._run("inspect", sources=list(sources))
        return [
            SourceStatus(
                source,
                float(row[0]),
                float(row[1]) if row[1] else None,
                row[2] or None,
                float(row[3]),
                row[4].decode(errors="replace"),
                int(row[5]) / MICROS,
                int(row[6]) / MICROS,
                float(row[7]),
                row[8].decode(errors="replace"),
                float(row[9]) if row[9] else None,
                int(row[10]),
                int(row[11]),
                int(row[12]) / MICROS,
                int(row[13]),
                int(row[14]),
                int(row[15]),
            )
            for source, row in zip(sources, rows, strict=True)
        ]

    async def look_robots(self, worker: str | None, origin: str, source: str) -> RobotsReply:
        """Return the shared copy of an origin's robots.txt, or that `worker` is the one to fetch it.

        Without a worker: only what holds at present, and nothing is noted.
        """
        what, body, seconds, reason, slower = await self._run(
            "look_robots", worker=worker, origin=origin, source=source
        )
        return RobotsReply(
            what.decode(errors="replace"), body, float(seconds), reason.decode(errors="replace"), bool(slower)
        )

    async def keep_robots(
        self,
        worker: str,
        origin: str,
        source: str,
        *,
        kind: str,
        body: bytes = b"",
        ttl: float = 0.0,
        delay: float = 0.0,
        reason: str = "",
        retry: float = 60.0,
        retry_max: float = 3600.0,
    ) -> bool:
        """Share what came of fetching a robots.txt, as keep_robots.lua says; times in seconds.

        True when `source` is visited less often from now on.
        """
        reply = await self._run(
            "keep_robots",
            worker=worker,
            origin=origin,
            source=source,
            kind=kind,
            body=body,
            ttl=int(ttl * MICROS),
            delay=delay,
            reason=reason,
            retry=int(retry * MICROS),
            retry_max=int(retry_max * MICROS),
        )
        return bool(reply)
