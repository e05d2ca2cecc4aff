"""What the crawl did between two samples. Pure: no clock, no Redis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import msgpack

from crawlproject.politeness.outcomes import ERROR_KINDS, SITE_ERRORS
from crawlproject.state.scripts import LATENCY_BOUNDS, PARSE_BOUNDS, Overview
from crawlproject.status.histogram import quantile
from crawlproject.status.source_status import LINK_RESULTS, SUCCESSES, SourceRow

_FORMAT = 5  # of what is kept between two samples
_OF_ANSWERS = ("answers", "latency_us")
LINKS = tuple(f"links_{name}" for name in LINK_RESULTS)  # totals
_MANY_ERRORS = 0.1  # of all results


class SourceSample(NamedTuple):
    """One source: its status, its dead letters, its counters, how often each of its last 50 statuses came.

    `fetches` says how long its last fetches took, by bucket of `LATENCY_BOUNDS`; [] without any.
    """

    row: SourceRow
    dead: int
    counts: Mapping[str, int]
    statuses: Mapping[str, int]
    fetches: Sequence[int] = ()

    @property
    def errors(self) -> int:
        """Attempts that failed at the site or on the way there, retries included."""
        return sum(self.counts.get(f"error_{kind}", 0) for kind in SITE_ERRORS)


class InFlight(NamedTuple):
    """What workers hold now: leases, of how many sources, to how many registrable domains."""

    requests: int
    sources: int
    domains: int


class Others(NamedTuple):
    """Where not all sources are read one by one: the limits of all (rps), and how many others are only leased.

    These have requests in flight, and none that wait.
    """

    limits: float
    only_leased: int


@dataclass(frozen=True, slots=True)
class CrawlSample:
    """All that was read at one moment. `time` is UTC, ISO 8601; `in_flight` is of all workers.

    `others` is None where every known source is in `sources`. `unread` are the events that readers have not read,
    by reader: of those furthest behind. `shards` are the numbers of those that it is of, `stopped` says of which
    nothing goes out, and why.
    """

    time: str
    spider: str
    overview: Overview
    in_flight: InFlight
    sources: Mapping[str, SourceSample]
    others: Others | None = None
    unread: Mapping[str, int] = field(default_factory=dict)
    shards: Sequence[int] = (0,)
    stopped: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counters:
    """The part of a sample that the next one is compared with. `at` is in seconds, on Redis' clock.

    `whole` says that every known source is in `sources`, so that a source that is missing there had done nothing.
    `shards` are the numbers of the shards that it is of.
    """

    at: float
    whole: bool
    totals: Mapping[str, int]
    latencies: Sequence[int]
    fetches: Sequence[int]
    parses: Sequence[int]
    sources: Mapping[str, Mapping[str, int]]
    shards: Sequence[int] = (0,)

    @classmethod
    def of(cls, sample: CrawlSample) -> Self:
        """Return the counters of a sample."""
        overview = sample.overview
        return cls(
            overview.now,
            len(sample.sources) >= overview.known,
            overview.totals,
            overview.latencies,
            overview.fetches,
            overview.parses,
            {
                name: {"errors": source.errors}
                | {count: source.counts.get(count, 0) for count in (*SUCCESSES, "link_rot", *_OF_ANSWERS)}
                for name, source in sample.sources.items()
                if source.row.successful or source.errors or source.counts.get("answers")
            },
            tuple(sample.shards),
        )

    def packed(self) -> bytes:
        """Return them as they are kept in Redis."""
        packed: bytes = msgpack.packb(
            [
                _FORMAT,
                self.at,
                self.whole,
                self.totals,
                self.latencies,
                self.fetches,
                self.parses,
                self.sources,
                list(self.shards),
            ]
        )
        return packed

    @classmethod
    def unpacked(cls, packed: bytes) -> Self | None:
        """Return the counters in `packed`; None if it is empty or was written by another version."""
        try:
            kind, at, whole, totals, latencies, fetches, parses, sources, shards = msgpack.unpackb(packed)
            is_whole = len(latencies) == len(fetches) == len(LATENCY_BOUNDS) + 1
            if kind == _FORMAT and is_whole and len(parses) == len(PARSE_BOUNDS) + 1:
                counted = dict(totals), latencies, fetches, parses, dict(sources)
                return cls(float(at), bool(whole), *counted, tuple(shards))
        except (ValueError, TypeError, msgpack.UnpackException):
            pass
        return None


@dataclass(frozen=True, slots=True)
class General:
    """The whole crawl, as docs/events.md says. Rates a second over the interval, times in seconds."""

    global_max_rps: float
    success_rps: float
    error_rps: float
    processing_rate: float
    circuit_breaker_tripped: list[str]
    circuit_breaker_open: list[str]
    num_resized: int
    resize_errors: int
    split_rate: float
    link_rot_rps: float
    dead_rps: float
    robots_rps: float
    opt_out_rps: float
    refused_rps: float
    retry_rps: float
    bytes: int
    bytes_per_s: float
    latency_p50_s: float | None
    latency_p95_s: float | None
    latency_p99_s: float | None
    fetch_p50_s: float | None
    fetch_p95_s: float | None
    fetch_p99_s: float | None
    errors: Mapping[str, int]
    errors_now: Mapping[str, int]
    outstanding: int
    in_flight: int
    dead: int
    seeds_waiting: int
    eta_s: float | None
    feeders: int
    seeds_outside: int | None
    workers: int
    sources: int
    sources_in_progress: int
    sources_in_flight: int
    domains_in_flight: int
    sources_listed: int
    exclusions: int
    excluded: int
    purged: int
    parse_p50_s: float | None
    parse_p95_s: float | None
    parse_p99_s: float | None
    links_rps: float
    links_admitted: int
    links_known: int
    links_over_budget: int
    links_without_room: int
    links_refused: int
    links_excluded: int
    waiting: int
    spilled: int
    overflow_lost: int
    sources_due: int
    redis_bytes: int
    paused: str | None
    shards_stopped: Mapping[str, str]
    trouble: Sequence[str]


@dataclass(frozen=True, slots=True)
class Specific:
    """One source, as docs/events.md says. Rates a second over the interval, times in seconds."""

    successful: int
    error: int
    rate_limit: float
    last_50_statuses: Mapping[str, int]
    effective_rate: float
    reason: str
    state: str
    success_rps: float | None
    error_rps: float | None
    link_rot_rps: float | None
    link_rot: int
    failed: int
    queued: int
    waiting: int
    spilled: int
    delayed: int
    in_flight: int
    work: int
    dead: int
    eta_s: float | None
    links: Mapping[str, int]
    budget: Mapping[str, int | None] | None
    bytes: int
    latency_mean_s: float | None
    fetch_p50_s: float | None
    fetch_p99_s: float | None
    errors: Mapping[str, int]
    trouble: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the crawl is doing: the event `monitoring_update`, which everything else shows, too."""

    EVENT: ClassVar[str] = "monitoring_update"

    time: str
    interval_s: float
    general: General
    specific: Mapping[str, Specific]
    sample: CrawlSample = field(repr=False)

    def as_event(self) -> dict[str, Any]:
        """Return it as the event."""
        return {
            "event": self.EVENT,
            "time": self.time,
            "spider": self.sample.spider,
            "interval_s": self.interval_s,
            "general": _fields(self.general),
            "specific": {name: _fields(source) for name, source in self.specific.items()},
        }


def _fields(part: General | Specific) -> dict[str, Any]:
    """Return the fields as they are; `asdict` would copy all that is in them, a thousand times a line."""
    return {name: getattr(part, name) for name in type(part).__slots__}


def snapshot(before: Counters, sample: CrawlSample) -> Snapshot | None:
    """Return what happened from `before` to `sample`; None when no time has passed, or they are not of the same
    shards.
    """
    overview = sample.overview
    interval = overview.now - before.at
    if interval <= 0 or tuple(before.shards) != tuple(sample.shards):
        return None

    def grown(name: str) -> int:
        return increase(before.totals.get(name, 0), overview.totals.get(name, 0))

    def rate(*names: str) -> float:
        return round(sum(map(grown, names)) / interval, 3)

    specific = {name: _specific(name, source, before, interval) for name, source in sorted(sample.sources.items())}
    latencies = [increase(*pair) for pair in zip(before.latencies, overview.latencies, strict=True)]
    fetches = [increase(*pair) for pair in zip(before.fetches, overview.fetches, strict=True)]
    p50, p95, p99 = (quantile(part, latencies) for part in (0.5, 0.95, 0.99))
    parses = [increase(*pair) for pair in zip(before.parses, overview.parses, strict=True)]
    parse_p50, parse_p95, parse_p99 = (quantile(part, parses, PARSE_BOUNDS) for part in (0.5, 0.95, 0.99))
    fetch_p50, fetch_p95, fetch_p99 = (quantile(part, fetches) for part in (0.5, 0.95, 0.99))
    success, error = rate(*SUCCESSES), rate(*(f"error_{kind}" for kind in SITE_ERRORS))
    link_rot = rate("link_rot")
    rows = [source.row for source in sample.sources.values()]
    for_a_while = sorted(set(overview.halted_for_a_while) - set(overview.halted))
    needs_attention = {
        "error_rps": error > _MANY_ERRORS * (success + link_rot + error),
        "circuit_breaker_tripped": bool(overview.halted),
        "circuit_breaker_open": bool(for_a_while),
        "workers": not overview.alive,
        "paused": bool(overview.pause.reason),
        "shards_stopped": bool(sample.stopped),
    }
    general = General(
        global_max_rps=sample.others.limits if sample.others else math.fsum(row.rate_limit for row in rows),
        success_rps=success,
        error_rps=error,
        processing_rate=round(success + error, 3),
        circuit_breaker_tripped=overview.halted,
        circuit_breaker_open=for_a_while,
        num_resized=overview.totals.get("thumbnails", 0),
        resize_errors=overview.totals.get("error_decode", 0),
        split_rate=rate("admitted"),
        link_rot_rps=link_rot,
        dead_rps=rate("failed"),
        robots_rps=rate("error_robots"),
        opt_out_rps=rate("error_opt_out"),
        refused_rps=rate("error_refused"),
        retry_rps=rate("retried"),
        bytes=overview.totals.get("bytes", 0),
        bytes_per_s=rate("bytes"),
        latency_p50_s=p50,
        latency_p95_s=p95,
        latency_p99_s=p99,
        fetch_p50_s=fetch_p50,
        fetch_p95_s=fetch_p95,
        fetch_p99_s=fetch_p99,
        errors=_errors(overview.totals),
        errors_now={kind: count for kind in ERROR_KINDS if (count := grown(f"error_{kind}"))},
        outstanding=overview.outstanding,
        in_flight=sample.in_flight.requests,
        dead=overview.dead,
        seeds_waiting=overview.seeds + overview.overflow,
        eta_s=eta(sample),
        feeders=overview.feeding.processes,
        seeds_outside=overview.feeding.left,
        workers=overview.alive,
        sources=overview.known,
        sources_in_progress=overview.due
        + sum(1 for row in rows if row.in_flight and not row.queued + row.delayed)
        + (sample.others.only_leased if sample.others else 0),
        sources_in_flight=sample.in_flight.sources,
        domains_in_flight=sample.in_flight.domains,
        sources_listed=len(rows),
        exclusions=overview.excluded,
        excluded=overview.totals.get("excluded", 0),
        purged=overview.totals.get("purged", 0),
        parse_p50_s=parse_p50,
        parse_p95_s=parse_p95,
        parse_p99_s=parse_p99,
        links_rps=rate(*LINKS),
        **{name: overview.totals.get(name, 0) for name in LINKS},
        waiting=overview.overflow,
        spilled=overview.spilled,
        overflow_lost=overview.totals.get("overflow_lost", 0),
        sources_due=overview.ready,
        redis_bytes=overview.redis_bytes,
        paused=overview.pause.reason or None,
        shards_stopped={str(number): reason for number, reason in sample.stopped.items()},
        trouble=[key for key, needed in needs_attention.items() if needed],
    )
    return Snapshot(sample.time, round(interval, 3), general, specific, sample)


def _specific(name: str, source: SourceSample, before: Counters, interval: float) -> Specific:
    row, then = source.row, before.sources.get(name)
    if then is None and before.whole:
        then = {}

    def grown(count: str, now: int) -> int | None:
        return None if then is None else increase(then.get(count, 0), now)

    def rate(count: str, now: int) -> float | None:
        more = grown(count, now)
        return None if more is None else round(more / interval, 3)

    successes = [grown(count, source.counts.get(count, 0)) for count in SUCCESSES]
    answers, micros = (grown(count, source.counts.get(count, 0)) for count in ("answers", "latency_us"))
    return Specific(
        successful=row.successful,
        error=source.errors,
        rate_limit=row.rate_limit,
        last_50_statuses=source.statuses,
        effective_rate=row.effective_rate,
        reason=row.reason,
        state=row.state,
        success_rps=None if then is None else round(sum(filter(None, successes)) / interval, 3),
        error_rps=rate("errors", source.errors),
        link_rot_rps=rate("link_rot", source.counts.get("link_rot", 0)),
        link_rot=source.counts.get("link_rot", 0),
        failed=row.failed,
        queued=row.queued,
        waiting=row.waiting,
        spilled=row.spilled,
        delayed=row.delayed,
        in_flight=row.in_flight,
        work=row.work,
        dead=source.dead,
        eta_s=row.eta_s,
        links=row.links,
        budget=row.budget,
        bytes=source.counts.get("bytes", 0),
        latency_mean_s=round(micros / answers / 1e6, 6) if answers and micros is not None else None,
        fetch_p50_s=quantile(0.5, source.fetches),
        fetch_p99_s=quantile(0.99, source.fetches),
        errors=_errors(source.counts),
        trouble=row.trouble,
    )


def _errors(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the errors by kind, without kinds that have not occurred."""
    return {kind: count for kind in ERROR_KINDS if (count := counts.get(f"error_{kind}", 0))}


def increase(before: int, now: int) -> int:
    """Return by how much a counter has grown; if it is smaller now, it restarted from 0, as for Prometheus."""
    return now - before if now >= before else max(now, 0)


def eta(sample: CrawlSample) -> float | None:
    """Return the seconds until the slowest of the sources being crawled has done its work.

    Seeds in the list have no source yet: each source is taken to have as large a share of them as it has of the
    work in the frontier. 0 without work, None when there is some and nothing goes out, or nothing but such seeds.
    """
    overview = sample.overview
    rows = [source.row for source in sample.sources.values()]
    if not overview.outstanding and not overview.seeds:
        return 0.0
    if overview.pause.reason:
        return None
    work = overview.outstanding + overview.overflow
    times = [
        row.eta_s + overview.seeds * (row.work / work) / row.effective_rate
        for row in rows
        if row.eta_s and row.effective_rate > 0 and work
    ]
    return max(times, default=None)
