"""Functions of the frontier: seeds, leases and their ends, workers, dead letters."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from crawlproject.models import Lease, Requested
from crawlproject.politeness.slots import tolerance
from crawlproject.state.clock import MICROS, local_time
from crawlproject.state.functions import Caller, set_fields, texts

_LONGEST_HOST = 100  # characters that are noted of it
_SPREAD_US = 1500  # between the slots of sources that are all free now: what starting one takes
# Upper bounds of the buckets of durations, in seconds; one more is open.
LATENCY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 30.0, 60.0)
PARSE_BOUNDS = (
    0.0005,
    0.001,
    0.002,
    0.003,
    0.005,
    0.0075,
    0.01,
    0.015,
    0.025,
    0.04,
    0.06,
    0.1,
    0.2,
    0.5,
    1.0,
    5.0,
)
# In the totals of all sources: to the first byte, of whole fetches, of reading a page; beside sums (`latency_us`)
HISTOGRAMS = {"latency": LATENCY_BOUNDS, "fetch": LATENCY_BOUNDS, "parse": PARSE_BOUNDS}
_DROPPED_A_CALL = 500  # requests: some milliseconds
PLACES_A_PART = 65_536  # of the table of texts: 590 KB


class LeaseReply(NamedTuple):
    """Answer to `lease`. `state` is "ok", "lapsed", or the kind of a pause, whose `reason` is a sentence then.

    `next_due` is the moment, on this worker's clock, at which the next source has work and a free slot, None when
    there is none. `strays` have no slots: their requests waited with a source that they do not belong to by now.
    """

    state: str
    reason: str
    next_due: float | None
    grants: list[Lease]
    strays: list[Lease]


class EnqueueReply(NamedTuple):
    """Answer to `enqueue`: what became of the batch.

    `forwarded` wait for the shard that they belong to. Items without a seed that could not be stored, as the list
    for that shard is full, are to come again: `unstored` has their places in the batch.
    """

    admitted: int
    duplicates: int
    dead: int
    returned: int
    excluded: int
    forwarded: int
    unstored: list[int]


@dataclass(frozen=True, slots=True)
class Budget:
    """How many links found on pages each source may admit; see the Lua module `budgets`."""

    base: int = 1_000
    per_page: int = 4
    most: int = 1_000_000
    hosts: int = 100


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """Links to one registrable domain, and the source that they name, if any.

    Of each link: its stored request, its digest for the seen filter, and the 32-bit hash of its host, "" for one
    that does not count towards the hosts of its domain.
    """

    domain: str
    source: str | None
    entries: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    hosts: list[int | str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a page: its place in the table of texts; digests of the text and of its address."""

    part: int
    place: int  # in this part,
    places: int  # which has so many
    digest: bytes
    address: bytes

    @classmethod
    def of(cls, digest: bytes, address: bytes, places: int) -> Self:
        """Return that of `digest`, 9 bytes, of which the first five choose one of `places`; `address` has 5."""
        part, place = divmod(int.from_bytes(digest[:5]) % places, PLACES_A_PART)
        return cls(part, place, min(PLACES_A_PART, places), digest[5:], address)


@dataclass(frozen=True, slots=True)
class Sitemaps:
    """Links that are sitemaps: `source` leads to them, and may have so many of them."""

    source: str
    most: int


@dataclass(frozen=True, slots=True)
class Finds:
    """What one page leads to. With a `text` it is admitted unless that was last seen under another address."""

    groups: Sequence[LinkGroup]
    text: Text | None = None
    sitemaps: Sitemaps | None = None


class DropReply(NamedTuple):
    """Answer to `drop_queued`: the requests dropped by this call, and those that still wait."""

    dropped: int
    left: int


class SettleReply(NamedTuple):
    """Answer to `settle`: whether the worker still had each lease, and the sources that are halted or held."""

    settled: list[bool]
    held_back: list[str]


class Lost(NamedTuple):
    """A worker found dead, and what became of its leases."""

    worker: str
    returned: int
    dead: int


class Idleness(NamedTuple):
    """Answer to `idle`: whether no work is left; and what differs if any of it has come and gone in between."""

    is_idle: bool
    marks: tuple[bytes, ...]


class HeartbeatReply(NamedTuple):
    """Answer to `heartbeat`: living workers, 0 if this one has lapsed; its leases; who was found dead, if any."""

    alive: int
    leases: int
    lost: Lost | None


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request to enqueue, with its digest for the seen filter.

    `domain` is that of its URL, `source` the one that its seed names, which need not be the one it will belong to
    (see the Lua module `belonging`). Without a domain, `source` is known to be that. One that comes `again` and
    has an id, `once`, is stored once, however often it is sent.
    """

    entry: bytes
    digest: bytes
    again: bool
    source: str | None = None
    domain: str | None = None
    once: bytes | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A seed that could not be understood, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Revisit:
    """A page that is to be looked at again: its digest for the seen filter, the request to store, after how many
    seconds.
    """

    digest: bytes
    entry: bytes
    interval: float


@dataclass(slots=True)
class Settlement:
    """The end of one lease.

    With `event` (stream name, JSON) and `more_events` it is done, with `done` without one; with `dead` it
    is a dead letter for that reason (a `refusal`: the site forbids it, or nobody has vouched for it), `image` is
    what is known of its image, and `attempt` what is to stand of the last attempt in its event (JSON); else
    `entry` goes back to the queue of `source`, to its head or after `delay` seconds; with `domain`, to that of the
    source that this domain, and the `name` in its seed if that is given, tell (see the Lua module `belonging`): a
    `stray` behind what waits there.
    `counts` are added to those of `source`. `parse_s` is the time that reading the page took. `revisit`: the page
    is looked at again.

    What it says of the source that paid: `status` is noted; with `fine` it is a sample of its circuit, of `host`;
    `latency` is the time to the first byte in seconds, `fetch_s` that of the whole fetch, to the last byte or the
    time-out; `slows` says that it slows the source down, and holds it
    for `hold` seconds if that is set. `answered`: the site has answered, though that is not a sample (a redirect,
    an opt-out); a probe has gone well by that. `unsent` is the slot (µs, Redis' clock) of a lease whose request
    was never sent: where the spider keeps a delay of its own, the next request need not wait for that. `unused` is
    the slot of one for which nobody has so much as connected, with its rate: if it was the last one, its source
    gets it back.

    `requested` is the request that was sent for it, if one was; `forbidden` by what the site forbids the image or
    page, "robots" or "opt_out". Both are for the report of the source.
    """

    id: str
    source: str
    entry: bytes = b""
    event: tuple[str, str] | None = None
    more_events: Sequence[tuple[str, str]] = ()
    done: bool = False
    dead: str | None = None
    refusal: bool = False
    image: str | None = None
    attempt: str | None = None
    delay: float = 0.0
    domain: str | None = None
    name: str | None = None
    stray: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    parse_s: float | None = None
    revisit: Revisit | None = None
    status: str | None = None
    fine: bool | None = None
    host: str | None = None
    latency: float | None = None
    fetch_s: float | None = None
    slows: bool = False
    hold: float | None = None
    answered: bool = False
    unsent: int | None = None
    unused: tuple[int, float] | None = None
    requested: Requested | None = None
    forbidden: str | None = None

    @property
    def size(self) -> int:
        """Characters of its events."""
        events = self.more_events if self.event is None else (self.event, *self.more_events)
        return sum(len(event) for _, event in events)

    def packed(self) -> dict[str, Any]:
        """Return the fields that are set, and in which bucket each duration is, as settle.lua takes them."""
        found = {name: value for name, value in set_fields(self).items() if value}
        if self.fine is not None:
            found["fine"] = self.fine
        if self.id.partition(":")[2] == self.source:  # the one that has paid, as nearly always
            found.pop("source", None)
        if self.event is None and not self.done:
            found["entry"] = self.entry
        if self.requested is not None:
            found["requested"] = self.requested.packed()
        if self.host is not None:
            found["host"] = self.host[:_LONGEST_HOST]
        for name, bucket, bounds in _DURATIONS:
            if (seconds := getattr(self, name)) is not None:
                found |= {name: seconds, bucket: bisect_left(bounds, seconds)}
        return found


_DURATIONS = (
    ("latency", "latency_bucket", LATENCY_BOUNDS),
    ("fetch_s", "fetch_bucket", LATENCY_BOUNDS),
    ("parse_s", "parse_bucket", PARSE_BOUNDS),
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter to take out: for another life, by its request (`entry`) or its `seed` as it came; or for good.

    `domain` is that of the request's URL, `name` the source in its seed: they tell which source it belongs to now.
    """

    id: str
    source: str
    entry: bytes | None = None
    seed: bytes | None = None
    domain: str | None = None
    name: str | None = None


class FrontierScripts(Caller):
    """What happens to requests, from the seed list to their settlement."""

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
    ) -> EnqueueReply | None:
        """Store a batch; with `seeds`, it stands for these, which are on the processing list.

        None if nothing was done: they are no longer there, or all is to stay for now (see enqueue.lua).
        """
        reply = await self._run(
            "enqueue",
            worker=worker,
            items=list(items),
            digest=hashlib.sha1(b"\n".join(seeds), usedforsecurity=False).hexdigest() if seeds else None,
        )
        if not reply:
            return None
        return EnqueueReply(*reply)._replace(unstored=[number - 1 for number in reply[-1]])

    async def discover(
        self, pages: Sequence[Finds], *, budget: Budget | None, most_outstanding: int | None = None
    ) -> list[str | None] | None:
        """Admit what pages lead to: of each a letter a link, or None if its text has another address.

        None if nothing was done, for want of a pulse (see discover.lua). While `most_outstanding` requests are in
        the frontier none is admitted; None: each source may always have a few.
        """
        reply = await self._run("discover", pages=list(pages), most_outstanding=most_outstanding, budget=budget)
        return None if reply is None else [None if letters is None else letters.decode() for letters in reply]

    async def lease(
        self,
        worker: str,
        want: int,
        *,
        rooms: Mapping[str, int],
        room: int,
        horizon: float,
        suspect: bool = False,
    ) -> LeaseReply:
        """Take up to `want` requests whose send slots lie within `horizon` seconds.

        `rooms` says of some sources how many leases they may get; any other gets at most `room`. A request that
        was lost with a worker is a suspect: it comes only to a worker that does not hold a `suspect` already."""
        sent = local_time()
        ran, state, due, *batches = await self._run(
            "lease",
            worker=worker,
            want=want,
            rooms=dict(rooms),
            room=room,
            horizon=int(horizon * MICROS),
            spread=_SPREAD_US,
            suspect=suspect,
        )
        self._observe(sent, ran)
        kind, reason = texts(state)
        grants, strays = list[Lease](), list[Lease]()
        for source, generation, number, slot, step, rate, entries in batches:
            ending = f".{generation.decode()}:{source.decode()}"
            for place, entry in enumerate(entries):
                deliveries = entry[1] if len(entry) > 1 else 0
                lease = Lease(f"{int(number) + place}{ending}", 0.0, 0.0, deliveries, entry)
                if slot:
                    lease.at, lease.rate = int(slot) + round(place * float(step)), float(rate)
                    lease.slot = self._clock.local(lease.at)
                    lease.latest = lease.slot + tolerance(lease.rate)
                (grants if slot else strays).append(lease)
        return LeaseReply(kind, reason, self._clock.local(int(due)) if due else None, grants, strays)

    async def settle(self, worker: str, settlements: Sequence[Settlement]) -> SettleReply:
        """End leases."""
        if not settlements:
            return SettleReply([], [])
        reply = await self._run(
            "settle",
            worker=worker,
            settlements=[one.packed() for one in settlements],
        )
        settled, held_back = reply
        sources = [source.decode(errors="replace") for source in held_back]
        return SettleReply([one == 1 for one in settled], sources)

    async def revisit(self, *, count: int) -> tuple[int, int] | None:
        """Store the requests for pages whose next look is due, of `count` sources at most; return how many there
        were, and how many sources were looked at; None if nothing was done for now (see revisit.lua).
        """
        reply = await self._run("revisit", count=count)
        return (reply[0], reply[1]) if reply else None

    async def heartbeat(self, worker: str, *, join: bool, timeout: float, max_deliveries: int) -> HeartbeatReply:
        """Say that `worker` lives; take the leases of one that is silent for `timeout` seconds."""
        alive, leases, *lost = await self._run(
            "heartbeat",
            worker=worker,
            join=join,
            timeout=int(timeout * MICROS),
            max_deliveries=max_deliveries,
        )
        return HeartbeatReply(alive, leases, Lost(lost[0].decode(), *lost[1:]) if lost else None)

    async def alive(self, *, timeout: float) -> list[str]:
        """Return the workers that have sent a heartbeat in the last `timeout` seconds."""
        return texts(await self._run("alive", timeout=int(timeout * MICROS)))

    async def leave(self, worker: str) -> int:
        """Give back all that `worker` holds; return the number of leases."""
        return int(await self._run("leave", worker=worker))

    async def idleness(self) -> Idleness:
        """Tell whether the frontier, the seed list and every worker's processing list are empty.

        Of several shards: whether those of this one are, and nothing waits here for others. All are idle when each
        is, in two looks with the same marks.
        """
        is_idle, *marks = await self._run("idle")
        return Idleness(bool(is_idle), tuple(marks))

    async def drop_queued(self, source: str, what: str, *, count: int, by: str | None = None) -> DropReply:
        """Drop up to `count` waiting requests of `source`, if it is excluded, or, with `what` "purged", anyway.

        What was dropped is counted, and no longer in the seen filter. `by` says who begins to purge it.
        """
        return DropReply(*await self._run("drop_queued", source=source, what=what, count=count, by=by))

    async def drop_all(self, source: str, what: str, by: str | None = None) -> int:
        """Drop what waits of an excluded source, or, with `what` "purged", of any; return how many requests.

        No more than waited at the beginning: a source may be fed meanwhile.
        """
        dropped, left = await self.drop_queued(source, what, count=_DROPPED_A_CALL, by=by)
        all_dropped, most = dropped, dropped + left
        while dropped and all_dropped < most:
            count = min(_DROPPED_A_CALL, most - all_dropped)
            dropped, _ = await self.drop_queued(source, what, count=count)
            all_dropped += dropped
        return all_dropped

    async def mend(self, found: Mapping[str, Sequence[bytes]]) -> list[int]:
        """Mend what is derived from the keys found, of which `found` has the ends by kind.

        Return what it has seen (outstanding, overflow, spilled) and mended (sources, workers, others).
        """
        kinds = ("queues", "delayed", "overflows", "extents", "revisits", "workers")
        counts: list[int] = await self._run("mend", **{kind: list(found.get(kind, ())) for kind in kinds})
        return counts

    async def recount(self, before: Sequence[int], held: int, found: Sequence[int]) -> list[tuple[str, int, int]]:
        """Set the counters to what there is; return those that were wrong: their names, before and after.

        `before` are their values when the audit began, `held` how many leases there were, `found` the sums of what
        it has seen; see recount.lua.
        """
        reply = await self._run("recount", before=list(before), held=held, found=list(found))
        return [(name.decode(), was, now) for name, was, now in reply]

    async def was_seen(self, digest: bytes) -> bool:
        """Tell whether a request was ever enqueued."""
        [[*_, is_seen]] = await self._run("attribute", requests=[{"digest": digest}])
        return bool(is_seen)

    async def take_dead(self, letters: Sequence[DeadLetter]) -> int:
        """Take dead letters out, for another life or for good; return how many there were."""
        return int(await self._run("take_dead", dead_letters=list(letters)))
