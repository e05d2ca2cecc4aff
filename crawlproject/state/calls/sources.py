"""Functions of the sources: send slots, rates, circuits, robots.txt."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgpack

from crawlproject.errors import Excluded
from crawlproject.models import Requested, Slot
from crawlproject.politeness.slots import LATE_S, tolerance
from crawlproject.sources.rates import Limit, row_text
from crawlproject.state.calls.frontier import LATENCY_BOUNDS
from crawlproject.state.clock import MICROS, local_time
from crawlproject.state.functions import Caller, texts
from crawlproject.state.shards import SourceElsewhere

ROBOTS_LOCK_S = 45.0  # while one fetches a robots.txt: longer than its download takes
_ACQUIRE_HORIZON_S = 1.0  # how far ahead `acquire` reserves slots; leases of 0.5 s come after that
_ELSEWHERE = 2  # answer of `acquire` for a source that is in another shard
_WRITTEN = 25  # sources or domains that the leader writes in one call
_OTHERS_SHARE = 0.05  # of a source's slots, for requests that the robots.txt of other sources lead to


class SourceStatus(NamedTuple):
    """What a source may do at present, and why: rates in requests a second, times on Redis' clock in seconds.

    `limit` is the rate in force, `by_size` the catalogue's, `override` the operator's limit as it is written;
    `effective` is what is left of the limit by `factor` (for the reason `why`) and by `robots_delay`
    (seconds; not where the limit is `over_robots`). `held_until` is 0 when nothing holds it. `waiting` are
    requests beyond its share of the frontier. `hosts` are those that its results of the last minutes came from,
    each with its `successful` and `errors`; None stands for all but the first eight. If all errors came from one
    of several hosts, that is `failing_host`, else "". `delay` is what this spider keeps itself between its
    requests to the source (s, 0: none), `paced_until` when it may send the next one for that.
    `spilled` are those of the waiting ones that are in extents (CRAWL_OVERFLOW_STORE), not in Redis.

    `counts` are those of `Keys.counts`; `dead` its dead letters at present; `spent` how many links it has admitted
    within its budget, and how many of them are poor; `statuses` how often each status is among its last 50, the
    most frequent first. `fetches` is how long fetches took lately, by bucket of `LATENCY_BOUNDS`, [] without any:
    of the last few minutes, as they are counted anew every five (see the Lua module `windows`).
    """

    source: str
    limit: float
    effective: float
    state: str
    held_until: float
    now: float
    factor: float
    why: str
    queued: int
    delayed: int
    next_slot: float
    generation: int
    waiting: int
    over_robots: bool
    hosts: list[dict[str, Any]]
    failing_host: str
    counts: Counter[str]
    dead: int
    spent: tuple[int, int]
    statuses: dict[str, int]
    fetches: list[int]
    paced_until: float = 0.0
    delay: float = 0.0
    spilled: int = 0
    by_size: float | None = None
    override: bytes | None = None
    robots_delay: float | None = None

    @classmethod
    def of(cls, source: str, packed: bytes) -> Self:
        """Return what inspect.lua says of a source."""
        found: dict[str, Any] = msgpack.unpackb(packed, unicode_errors="surrogateescape")
        for name in ("held_until", "now", "next_slot", "paced_until", "delay"):
            found[name] /= MICROS
        for name in {"limit", "effective", "factor", "by_size", "robots_delay"} & found.keys():
            found[name] = float(found[name])
        if "override" in found:
            found["override"] = found["override"].encode(errors="surrogateescape")
        found["counts"] = Counter(dict(found["counts"]))
        shown = (status.encode(errors="surrogateescape").decode(errors="replace") for status in found["statuses"])
        found["statuses"] = {status[:20]: count for status, count in Counter(shown).most_common()}
        found["spent"] = tuple(found["spent"])
        found["fetches"] = fetches_in(found["fetches"].encode(errors="surrogateescape"))
        hosts = [
            {"host": host or None, "successful": fine, "errors": errors}
            for host, (fine, errors) in sorted(
                dict(found.pop("hosts")).items(), key=lambda one: (not one[0], one[0])
            )
        ]
        return cls(source, hosts=hosts, **found)


def fetches_in(counters: bytes) -> list[int]:
    """Return the histogram in what the Lua module `windows` notes of fetches; [] without any fetch."""
    counts = [int.from_bytes(counters[at : at + 2]) for at in range(0, len(counters), 2)]
    return counts + [0] * (len(LATENCY_BOUNDS) + 1 - len(counts)) if any(counts) else []


class Attribution(NamedTuple):
    """Which source a request belongs to, and why.

    `kind` is what is known of the name in its seed: "bound" by the catalogue to `domains`, a "row" of it that is
    bound to none, the "rate" of an operator, a "domain", which is lent to no other, "unknown"; "" where there is
    no name.
    """

    source: str
    kind: str
    domains: list[str]

    @classmethod
    def of(cls, reply: Sequence[bytes]) -> Self:
        """Return what attribute.lua has said of one request."""
        source, kind, domains = texts(reply[:3])
        return cls(source, kind, domains.split())


class RobotsReply(NamedTuple):
    """Answer to `look_robots`: see look_robots.lua."""

    what: str
    body: bytes
    seconds: float
    reason: str
    slower: bool
    url: str
    fetch: str


class SlotReply(NamedTuple):
    """Answer to `acquire`: a send slot, or None and when to ask again (s)."""

    slot: Slot | None
    wait: float


class SourceScripts(Caller):
    """How fast each source may be crawled, and what holds it back."""

    async def acquire(
        self,
        *,
        source: str | None = None,
        domain: str | None = None,
        host: str = "",
        sent_by: str | None = None,
    ) -> SlotReply:
        """Reserve the next send slot of a source for a request to `host` without a lease, at most a second ahead.

        With `domain`, `source` is only what the request names as its source (see the Lua module `belonging`).
        `sent_by` is the source whose robots.txt leads to this one.

        Raises:
            Excluded: nothing goes out to that source, or to `host`.
            SourceElsewhere: it is in another shard.

        """
        target = {"source": source, "domain": domain}
        target = {name: value for name, value in target.items() if value is not None}
        sent = local_time()
        ran, slot, payer, rate, wait, excluded = await self._run(
            "acquire",
            **target,
            host=host,
            sent_by=sent_by,
            horizon=int(_ACQUIRE_HORIZON_S * MICROS),
            share=_OTHERS_SHARE,
        )
        self._observe(sent, ran)
        if excluded == _ELSEWHERE:
            raise SourceElsewhere(payer.decode(errors="surrogateescape"))
        if excluded:
            raise Excluded(
                f"{host or payer.decode(errors='replace')} or its source is excluded: see scrapy excluded"
            )
        if not slot:
            return SlotReply(None, int(wait) / MICROS)
        source, moment, rate = payer.decode(errors="surrogateescape"), int(slot), float(rate)
        return SlotReply(Slot(source, self._clock.local(moment), moment, rate, tolerance(rate)), 0.0)

    async def attribute(self, name: str | None, domain: str | None) -> Attribution:
        """Return which source a request belongs to whose seed gives `name`, and whose URL is of `domain`."""
        [found] = await self.attribute_all([(name, domain)])
        return found

    async def attribute_all(self, pairs: Sequence[tuple[str | None, str | None]]) -> list[Attribution]:
        """Return the same of each pair of a name and a domain."""
        requests = [{"source": name, "domain": domain} for name, domain in pairs]
        return [Attribution.of(reply) for reply in await self._run("attribute", requests=requests)]

    async def renew(
        self,
        slot: Slot,
        *,
        within: float,
        host: str = "",
        worker: str | None = None,
        lease: str | None = None,
    ) -> Slot | None:
        """Exchange a slot that was missed for one at most `within` seconds ahead.

        None when there is none so soon, or nothing may go out: no pulse, a rate of 0, a source that is halted,
        held or excluded, or has changed its state since. The request goes to `host`, and has the lease `lease` of
        `worker`, or none.
        """
        sent = local_time()
        ran, moment, rate = await self._run(
            "renew",
            source=slot.source,
            host=host,
            missed=slot.at,
            rate=slot.rate,
            within=int(within * MICROS),
            worker=worker,
            lease=lease,
        )
        self._observe(sent, ran)
        if not moment:
            return None
        return Slot(slot.source, self._clock.local(int(moment)), int(moment), float(rate), LATE_S)

    async def confirm(self, slot: Slot, *, host: str = "") -> bool:
        """Tell whether a slot reserved a while ago may still be used: neither halted nor excluded since."""
        _, moment, _ = await self._run(
            "renew", source=slot.source, host=host, missed=slot.at, late=int(slot.late * MICROS)
        )
        return bool(moment)

    async def exclude(self, names: Mapping[str, str], *, by: str | None = None, fence: int | None = None) -> bool:
        """Exclude sources and domains, each with the reason, or "": by an operator, or by a leader's file.

        False when another leads by now.
        """
        return bool(
            await self._run("exclude", names=list(names), reasons=list(names.values()), by=by, fence=fence)
        )

    async def include(
        self, names: Sequence[str], *, by: str | None = None, fence: int | None = None
    ) -> dict[str, str]:
        """Include names again; return what each is by now: see exclude.lua. Empty when another leads by now."""
        reply = await self._run("exclude", names=list(names), by=by, fence=fence)
        return dict(zip(names, texts(reply), strict=True)) if reply else {}

    async def set_rates(
        self,
        fence: int,
        rates: Sequence[tuple[str, float | Limit, float | None]],
        hosts: Mapping[str, str],
        options: Mapping[str, str] | None = None,
        claims: Mapping[str, str] | None = None,
    ) -> bool:
        """Write limits (source, in force, by size if its row is to be written, too) and hosts.

        Rows have what `options` (source to JSON) says, and, from `claims`, the domains that sources are bound to.
        False when another leads by now. Many go in several calls, each of which holds up Redis for some 2 ms.
        """
        options, claims = options or {}, claims or {}

        def row(source: str, by_size: float | None) -> str:
            return "" if by_size is None else row_text(by_size, claims.get(source, ""), options.get(source, ""))

        rows = [[source, str(in_force), row(source, by_size)] for source, in_force, by_size in rates]
        written: list[dict[str, Any]] = [
            {"rates": rows[first : first + _WRITTEN]} for first in range(0, len(rows), _WRITTEN)
        ]
        named = list(hosts.items())
        written += [{"hosts": dict(named[first : first + _WRITTEN])} for first in range(0, len(named), _WRITTEN)]
        return all([await self._run("set_rates", fence=fence, **part) for part in written])

    async def forget(self, fence: int, sources: Sequence[str], domains: Sequence[str]) -> bool:
        """Take sources and domains out of the catalogue's part; False when another leads by now."""
        return bool(await self._run("set_rates", fence=fence, gone=list(sources), gone_hosts=list(domains)))

    async def watch(self, fence: int) -> int:
        """Look at sources on the watchlist; return 1, or 2 if there are more, or 0 if another leads by now."""
        return int(await self._run("watch", fence=fence))

    async def inspect(self, sources: Sequence[str]) -> list[SourceStatus]:
        """Return the status of each of `sources`."""
        rows = await self._run("inspect", sources=list(sources))
        return [SourceStatus.of(source, row) for source, row in zip(sources, rows, strict=True)]

    async def look_robots(
        self, token: str | None, origin: str, source: str, *, fetches: bool = True
    ) -> RobotsReply:
        """Return the shared copy of an origin's robots.txt, and what the look-up `token` is to fetch.

        Without a token: only what holds at present, and nothing is noted. Without `fetches` none is to be fetched.
        """
        what, body, micros, reason, slower, url, fetch = await self._run(
            "look_robots",
            token=token,
            origin=origin,
            source=source,
            fetches=fetches,
            lock=int(ROBOTS_LOCK_S * MICROS),
        )
        what, reason, url, fetch = (text.decode(errors="replace") for text in (what, reason, url, fetch))
        if what == "rules":
            body = zlib.decompress(body)
        return RobotsReply(what, body, micros / MICROS, reason, bool(slower), url, fetch)

    async def keep_robots(
        self,
        token: str,
        url: str,
        *,
        kind: str,
        body: bytes = b"",
        ttl: float = 0.0,
        delay: float = 0.0,
        reason: str = "",
        retry: float,
        retry_max: float,
        source: str = "",
        requested: Requested | None = None,
    ) -> bool:
        """Share the result of fetching a robots.txt, as keep_robots.lua says; times in seconds.

        A text is stored compressed: an ordinary one of 200 bytes takes 130 like that, its copy 300 bytes of Redis.
        `requested` is the request that was sent for it, if one was: for the look-up of `source`.

        False when `token` may not keep it any more, and nothing was kept.
        """
        reply = await self._run(
            "keep_robots",
            token=token,
            url=url,
            kind=kind,
            body=zlib.compress(body, 9) if kind == "rules" else body,
            ttl=int(ttl * MICROS),
            delay=delay,
            reason=reason,
            retry=int(retry * MICROS),
            retry_max=int(retry_max * MICROS),
            source=source,
            payer=requested and requested.source,
            requested=requested and requested.packed(),
        )
        return bool(reply)

    async def expire_robots(self, urls: Sequence[bytes]) -> list[bytes]:
        """Have copies of robots.txt, a hundred at most, fetched again; return where those that redirect lead."""
        return list(await self._run("expire_robots", urls=list(urls)))

    async def note_request(self, requested: Requested) -> None:
        """Count a request that has neither a lease nor is for a robots.txt, for the report of its source."""
        await self._run("note_request", source=requested.source, requested=requested.packed())
