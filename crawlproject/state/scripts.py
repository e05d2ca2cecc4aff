"""The Lua scripts as Python calls: arguments packed and replies decoded here and nowhere else.

Each script is a file, a verb, whose header is its contract; script_text.py says what stands before its text.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError, ResponseError

from crawlproject.config import CircuitRules
from crawlproject.sources.rates import MINIMUM_RATE
from crawlproject.state.clock import MICROS, RedisClock
from crawlproject.state.health import Health, is_readonly
from crawlproject.state.keys import Keys
from crawlproject.state.script_text import ScriptText

logger = logging.getLogger(__name__)

LEADER_TTL = 5.0  # seconds that the lead and the pulse outlive their last renewal
_SPREAD = 1500  # microseconds between the slots of sources that are all free now: what starting one takes
# Upper bounds of the buckets of fetch latency, in seconds; one more bucket has no bound.
LATENCY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 30.0, 60.0)
READING_TTL = 60  # seconds
# Lists with what all items have, each at its place: Redis unpacks few long tables faster than many short ones.
_ENQUEUE_COLUMNS = ("sources", "domains", "entries", "buckets", "members", "again", "dead")
_SETTLE_COLUMNS = (
    *("sources", "statuses", "fine", "latencies", "buckets", "throttled", "holds", "answered"),
    *("streams", "events", "dead", "entries", "domains", "delays"),
)


class Grant(NamedTuple):
    """A lease: its id, its send slot on this worker's clock (s), its source's rate, the stored request."""

    id: str
    slot: float
    rate: float
    entry: bytes


class LeaseReply(NamedTuple):
    """Answer to `lease`. `state` is "ok", "lapsed", "no pulse" or the reason of a pause.

    `outstanding` counts the requests in the frontier; `next_due` is the moment, on this worker's clock, at
    which the next source has work and a free slot, None when there is none.
    """

    state: str
    outstanding: int
    next_due: float | None
    grants: list[Grant]


class EnqueueReply(NamedTuple):
    """Answer to `enqueue`: what became of the batch, and the requests then in the frontier."""

    admitted: int
    duplicates: int
    dead: int
    deferred: int
    outstanding: int


class SettleReply(NamedTuple):
    """Answer to `settle`: whether the worker still had each lease, and the sources that are halted or held."""

    settled: list[bool]
    held_back: list[str]


class Lost(NamedTuple):
    """A worker found dead, and what became of its leases."""

    worker: str
    returned: int
    dead: int


class HeartbeatReply(NamedTuple):
    """Answer to `heartbeat`: whether the worker is still registered, its leases, and who was found dead."""

    alive: bool
    leases: int
    lost: list[Lost]


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request to enqueue, with its place in the seen filter and its source, or the domain that tells it."""

    entry: bytes
    bucket: str
    member: int
    again: bool
    source: str | None = None
    domain: str | None = None

    def packed(self) -> dict[str, Any]:
        """Return what there is of the request, by column of enqueue.lua."""
        found: dict[str, Any] = {"entries": self.entry, "buckets": self.bucket, "members": str(self.member)}
        if self.again:
            found["again"] = True
        if self.source is None:
            found["domains"] = self.domain
        else:
            found["sources"] = self.source
        return found


@dataclass(frozen=True, slots=True)
class Rejected:
    """A seed that could not be understood, and why."""

    reason: str

    def packed(self) -> dict[str, Any]:
        """Return what there is of the seed, by column of enqueue.lua."""
        return {"dead": self.reason}


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one lease.

    With `event` (stream name, JSON) it is done; with `dead` it is a dead letter for that reason; else
    `entry` goes back to the queue of `source` (or of whoever the catalogue gives `domain`), to its head or
    after `delay` seconds. `counts` are added to those of `source`.

    What it says of the source that paid: `status` is noted; with `fine` it is a sample of its circuit;
    `latency` is the time to the first byte in seconds; `throttled` says that it asked for patience, for
    `hold` seconds if it said how long. `answered`: the site has answered, though that is not a sample (a redirect,
    an opt-out); a probe has gone well by that.
    """

    id: str
    source: str
    entry: bytes = b""
    event: tuple[str, str] | None = None
    dead: str | None = None
    delay: float = 0.0
    domain: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    status: str | None = None
    fine: bool | None = None
    latency: float | None = None
    throttled: bool = False
    hold: float | None = None
    answered: bool = False


class SourceStatus(NamedTuple):
    """How a source stands: rates in requests a second, times on Redis' clock in seconds.

    `limit` is the rate in force, `by_size` the catalogue's, `override` the operator's as it is written;
    `effective` is what is left of the limit by `factor` (for the reason `why`) and by `robots_delay`
    (seconds). `held_until` is 0 when nothing holds it.
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


class Survey(NamedTuple):
    """Answer to `collect`: see collect.lua. Moments are on Redis' clock, in seconds; `last` may be None."""

    now: float
    leads: bool
    last: float | None
    kept: bytes
    outstanding: int
    seeds: int
    dead: int
    alive: int
    workers: list[str]
    paused: str
    pulse: bool
    known: int
    due: int
    halted: list[str]
    halted_for_a_while: list[str]
    totals: dict[str, int]
    latencies: tuple[int, ...]
    sources: list[str]


class RobotsReply(NamedTuple):
    """Answer to `look_robots`: see look_robots.lua."""

    what: str
    body: bytes
    seconds: float
    reason: str
    slower: bool


class DeadRetry(NamedTuple):
    """A dead letter to revive: a stored request with its source, or the seed as it came."""

    id: str
    source: str
    entry: bytes | None
    seed: bytes | None


class _Loaded(NamedTuple):
    """A script, its keys, and the arguments that are the same at each call."""

    script: AsyncScript
    keys: list[str]
    arguments: dict[str, Any]


class Scripts:
    """The scripts of one Redis. Each method is one round trip and raises what the client raises.

    `health` is told of each one that went well, and of data in Redis that is in the way of a single source.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        clock: RedisClock,
        health: Health | None = None,
        rules: CircuitRules | None = None,
    ) -> None:
        self._redis = redis
        self._rules = (rules or CircuitRules()).packed()
        self._emitted = [
            key.rpartition(":")[2] for key in (keys.image_events, keys.link_rot_events)
        ]  # as in settle.lua
        self._known = keys
        self._clock = clock
        self._health = health or Health()
        self._loaded: dict[str, _Loaded] = {}

    async def _run(self, verb: str, **arguments: Any) -> Any:
        loaded = self._loaded.get(verb)
        if loaded is None:
            text = ScriptText(verb, self._known)
            common = {"min_rate": MINIMUM_RATE, "circuit": self._rules}
            common = {name: value for name, value in common.items() if name in text.arguments}
            loaded = self._loaded[verb] = _Loaded(self._redis.register_script(text.text), text.keys, common)
        try:
            reply = await loaded.script(keys=loaded.keys, args=[_packed(arguments | loaded.arguments)])
        except RedisError as error:
            if is_readonly(error):  # a master that was demoted: the next call looks for the new one
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise
        self._health.answered()
        return reply

    def _observe(self, ran: bytes) -> None:
        moment, ahead = ran.split()
        back = self._clock.observe(int(moment), asyncio.get_running_loop().time(), int(ahead))
        if back:
            logger.warning("The clock of Redis was set back by %.0f s: the crawl keeps its own time", back)

    async def lease(
        self,
        worker: str,
        want: int,
        *,
        cap: int,
        cap_alone: int,
        holding: Mapping[str, int],
        horizon: float,
        dead_maxlen: int,
        max_deliveries: int,
        refuse_unknown: bool = False,
    ) -> LeaseReply:
        """Take up to `want` requests whose send slots lie within `horizon` seconds.

        `holding` says how many leases of each source the worker has; no source gets more than `cap` while
        others have work, or `cap_alone` when none has. A request that has been lost `max_deliveries` - 1 times
        comes alone, to a worker that holds nothing.
        """
        ran, state, outstanding, due, *grants = await self._run(
            "lease",
            worker=worker,
            want=want,
            cap=cap,
            cap_alone=cap_alone,
            holding=dict(holding),
            horizon=int(horizon * MICROS),
            spread=_SPREAD,
            refuse_unknown=refuse_unknown,
            dead_maxlen=dead_maxlen,
            max_deliveries=max_deliveries,
        )
        self._observe(ran)
        return LeaseReply(
            state.decode(errors="replace"),
            int(outstanding),
            self._clock.local(int(due)) if due else None,
            [
                Grant(lease.decode(), self._clock.local(int(slot)), float(rate), entry)
                for lease, slot, rate, entry in zip(*(grants[n::4] for n in range(4)), strict=True)
            ],
        )

    async def acquire(self, *, source: str | None = None, domain: str | None = None) -> float | None:
        """Reserve the next send slot for a request without a lease and return it, on this worker's clock.

        None when there is none to be had at present: no pulse, or a rate of 0.
        """
        target = {"source": source} if source is not None else {"domain": domain}
        ran, slot, _ = await self._run("acquire", **target)
        self._observe(ran)
        return self._clock.local(int(slot)) if slot else None

    async def confirm(self, *, source: str | None = None, domain: str | None = None) -> bool:
        """Tell whether a slot that was reserved a while ago may still be used: nothing was halted since."""
        target = {"source": source} if source is not None else {"domain": domain}
        return bool(await self._run("confirm", **target))

    async def take_seeds(self, worker: str, count: int, *, size: int = 1_000_000) -> list[bytes]:
        """Fill the worker's processing list up to `count` seeds; return all that are on it, in order.

        With `size` bytes in it no further one is taken: a single seed may be as large as it likes.
        """
        seeds: list[bytes] = await self._run("take_seeds", worker=worker, count=count, size=size)
        return seeds

    async def enqueue(
        self,
        worker: str,
        items: Sequence[NewRequest | Rejected],
        *,
        seeds: Sequence[bytes] = (),
        high_water: int,
        dead_maxlen: int = 0,
        refuse_unknown: bool,
    ) -> EnqueueReply | None:
        """Store a batch that stands for `seeds`, which are on the processing list.

        None if nothing was done: they are no longer there, or are to stay for now (see enqueue.lua).
        """
        reply = await self._run(
            "enqueue",
            worker=worker,
            count=len(items),
            **_columns(_ENQUEUE_COLUMNS, [item.packed() for item in items]),
            digest=hashlib.sha1(b"\n".join(seeds), usedforsecurity=False).hexdigest() if seeds else None,
            high_water=high_water,
            dead_maxlen=dead_maxlen,
            refuse_unknown=refuse_unknown,
        )
        return EnqueueReply(*reply) if reply else None

    async def settle(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        *,
        latency_backoff: bool = True,
        refuse_unknown: bool = False,
    ) -> SettleReply:
        """End leases. `latency_backoff`: slow answers slow a source down.

        With `refuse_unknown`, a request for a source that the catalogue does not name becomes a dead letter.
        """
        if not settlements:
            return SettleReply([], [])
        names = {name for one in settlements for name in one.counts}
        reply = await self._run(
            "settle",
            worker=worker,
            ids=[one.id for one in settlements],
            counts={name: [one.counts.get(name) for one in settlements] for name in names},
            latency_backoff=latency_backoff,
            refuse_unknown=refuse_unknown,
            **_columns(_SETTLE_COLUMNS, [self._settlement(one) for one in settlements]),
        )
        settled, held_back = reply
        sources = [source.decode(errors="replace") for source in held_back]
        return SettleReply([one == 1 for one in settled], sources)

    def _settlement(self, one: Settlement) -> dict[str, Any]:
        """Return what there is of a settlement beside its id and its counts, by column of settle.lua."""
        found: dict[str, Any] = {}
        if one.source != one.id.partition(":")[2]:
            found["sources"] = one.source
        if one.answered:
            found["answered"] = True
        if one.status is not None:
            found["statuses"] = one.status
            if one.fine is not None:
                found["fine"] = one.fine
            if one.latency is not None:
                found["latencies"] = int(one.latency * MICROS)
                found["buckets"] = bisect_left(LATENCY_BOUNDS, one.latency)
            if one.throttled:
                found["throttled"] = True
            if one.hold is not None:
                found["holds"] = int(one.hold * MICROS)
        if one.event is not None:
            stream, found["events"] = one.event
            found["streams"] = 1 + self._emitted.index(stream)
        elif one.dead is not None:
            found |= {"dead": one.dead, "entries": one.entry}
        else:
            found |= {"entries": one.entry, "delays": int(one.delay * MICROS)}
            if one.domain is not None:
                found["domains"] = one.domain
        return found

    async def heartbeat(self, worker: str, *, join: bool, timeout: float, max_deliveries: int) -> HeartbeatReply:
        """Say that `worker` lives; take their leases from those silent for `timeout` seconds."""
        alive, leases, *lost = await self._run(
            "heartbeat",
            worker=worker,
            join=join,
            timeout=int(timeout * MICROS),
            max_deliveries=max_deliveries,
        )
        return HeartbeatReply(
            bool(alive),
            leases,
            [
                Lost(worker.decode(errors="replace"), returned, dead)
                for worker, returned, dead in zip(lost[::3], lost[1::3], lost[2::3], strict=True)
            ],
        )

    async def leave(self, worker: str) -> int:
        """Give back all that `worker` holds; return the number of leases."""
        return int(await self._run("leave", worker=worker))

    async def idle(self, *, halted_too: bool = False) -> bool:
        """Tell whether the frontier, the seed list and every worker's processing list are empty.

        `halted_too`: the work of halted sources does not count.
        """
        return bool(await self._run("idle", halted_too=halted_too))

    async def lead(self, worker: str, *, ready: bool) -> int | None:
        """Take or renew the lead, with its pulse if `ready`; return the fence, None when another leads."""
        leads, fence = await self._run("lead", worker=worker, ttl=int(LEADER_TTL * 1000), ready=ready)
        return int(fence) if leads else None

    async def resign(self, worker: str) -> None:
        """Give up the lead, if `worker` has it."""
        await self._run("lead", worker=worker, release=True)

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
        said = [word.decode(errors="replace") for word in reply]
        return list(zip(said[::2], said[1::2], strict=True))

    async def inspect(self, sources: Sequence[str]) -> list[SourceStatus]:
        """Return how each of `sources` stands."""
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
            )
            for source, row in zip(sources, rows, strict=True)
        ]

    async def look_robots(self, worker: str, origin: str, source: str) -> RobotsReply:
        """Return the shared copy of an origin's robots.txt, or that `worker` is the one to fetch it."""
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

    async def trim(self, fence: int, *, maxlen: int) -> tuple[str, int]:
        """Bound streams and slots; return the reason of a pause, or "", and the events dropped unread."""
        reason, dropped, fault = await self._run("trim", fence=fence, maxlen=maxlen, ttl=int(LEADER_TTL * 1000))
        if fault:
            self._health.failed(ResponseError(fault.decode(errors="replace")))
        return reason.decode(errors="replace"), int(dropped)

    async def retry_dead(self, dead_letters: Sequence[DeadRetry]) -> int:
        """Move dead letters back into the frontier or the seed list; return how many there were."""
        packed: list[dict[str, Any]] = [
            {"id": letter.id, "source": letter.source}
            | ({"entry": letter.entry} if letter.seed is None else {"seed": letter.seed})
            for letter in dead_letters
        ]
        return int(await self._run("retry_dead", dead_letters=packed))

    async def drop_dead(self, dead_letters: Sequence[tuple[str, str]]) -> int:
        """Delete dead letters (id, source); return how many there were."""
        packed = [{"id": name, "source": source} for name, source in dead_letters]
        return int(await self._run("drop_dead", dead_letters=packed))

    async def collect(
        self, worker: str, *, must_lead: bool, every: float, timeout: float, most: int
    ) -> Survey | float | None:
        """Read what all sources share, and which `most` sources to look at; see collect.lua.

        With `must_lead`: None when another leads, and the seconds to wait when the last reading is not `every`
        seconds old.
        """
        reply = await self._run(
            "collect",
            worker=worker,
            must_lead=must_lead,
            every=int(every * MICROS),
            timeout=int(timeout * MICROS),
            most=most,
        )
        if len(reply) <= 1:
            return int(reply[0]) / MICROS if reply else None
        now, leads, last, kept, outstanding, seeds, dead, alive, workers, paused, pulse, known, due, *lists = reply
        halted, for_a_while, totals, latencies, sources = lists
        buckets = _counters(latencies)
        return Survey(
            int(now) / MICROS,
            leads == 1,
            int(last) / MICROS if last else None,
            kept,
            outstanding,
            seeds,
            dead,
            alive,
            _texts(workers),
            paused.decode(errors="replace"),
            pulse == 1,
            known,
            due,
            sorted(_texts(halted)),
            sorted(_texts(for_a_while)),
            _counters(totals),
            tuple(buckets.get(str(index), 0) for index in range(len(LATENCY_BOUNDS) + 1)),
            _texts(sources),
        )

    async def keep_reading(self, worker: str, at: float, counters: bytes) -> bool:
        """Keep what the monitor has read at `at` (s, Redis' clock), for the next reading, whoever makes it.

        False when another leads by now, or has read since.
        """
        return bool(
            await self._run(
                "keep_reading", worker=worker, at=round(at * MICROS), counters=counters, ttl=READING_TTL
            )
        )


class ReaderScript:
    """The one script of the event streams' readers, who block."""

    def __init__(self, client: BlockingRedis, keys: Keys) -> None:
        text = ScriptText("note_read", keys)
        self._script = client.register_script(text.text)
        self._keys = text.keys

    def note(self, positions: Mapping[str, str], turn: str | None = None, ttl: int = 0) -> str:
        """Note where a reader stands, by field of the readers' hash; with `turn`, take or keep that for `ttl` ms,
        at 0 give it back.

        Return "", or who else has the turn: then nothing was done. Goes well when Redis is out of memory, too,
        and then drops what all readers have read.
        """
        arguments: dict[str, Any] = {"positions": dict(positions), "ttl": ttl}
        if turn is not None:
            arguments["turn"] = turn
        holder: bytes = self._script(keys=self._keys, args=[_packed(arguments)])
        return holder.decode(errors="replace")


def _columns(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return lists with the values of all rows, None where a row has none; empty where no row has one."""
    used = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] if name in used else [] for name in names}


def _packed(arguments: Mapping[str, Any]) -> bytes:
    # use_bin_type: Redis' cmsgpack knows the first msgpack specification, which has no bytes.
    # surrogateescape: an id that is not UTF-8 goes back as it came.
    packed: bytes = msgpack.packb(arguments, use_bin_type=False, unicode_errors="surrogateescape")
    return packed


def _texts(values: Sequence[bytes]) -> list[str]:
    return [value.decode(errors="replace") for value in values]


def _counters(flat: Sequence[bytes]) -> dict[str, int]:
    """Return a hash of counters; what is not a whole number was not written by crawlproject."""
    found = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        if value.removeprefix(b"-").isdigit() and len(value) < 20:
            found[name.decode(errors="replace")] = int(value)
    return found
