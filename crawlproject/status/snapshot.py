"""What the crawl did between two samples. Pure: no clock, no Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from crawlproject.politeness.outcomes import ERROR_KINDS, NOT_HTML_TYPES, SITE_ERRORS
from crawlproject.state.calls import HISTOGRAMS, LATENCY_BOUNDS, Overview, histogram
from crawlproject.status.source_status import LINK_RESULTS, SUCCESSES, SourceRow

LINKS = tuple(f"links_{name}" for name in LINK_RESULTS)  # totals
_MANY_ERRORS = 0.1  # of all results


class InFlight(NamedTuple):
    """What workers hold now: leases, of how many sources, to how many registrable domains."""

    requests: int
    sources: int
    domains: int


@dataclass(frozen=True, slots=True)
class CrawlSample:
    """All that was read at one moment. `time` is UTC, ISO 8601; `in_flight` is of all workers.

    `limits` is the sum of the limits of all sources (rps), `unread` are the events that readers have not read, by
    reader: of those furthest behind. `shards` are the numbers of those that it is of, `stopped` says of which
    nothing goes out, and why.
    """

    time: str
    spider: str
    overview: Overview
    in_flight: InFlight
    sources: Mapping[str, SourceRow]
    limits: float = 0.0
    unread: Mapping[str, int] = field(default_factory=dict)
    shards: Sequence[int] = (0,)
    stopped: Mapping[int, str] = field(default_factory=dict)

    @property
    def has_pulse(self) -> bool:
        """A leader has set the rates."""
        return self.overview.pause.kind != "no pulse"

    @property
    def is_paused(self) -> bool:
        """Unread events or dead letters are at their bound."""
        return self.overview.pause.kind == "paused"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the crawl is doing: the event `monitoring_update`, which everything else shows, too.

    `general` is about the whole crawl, `specific` about each source: docs/events.md has their keys.
    """

    EVENT: ClassVar[str] = "monitoring_update"

    time: str
    interval_s: float
    general: Mapping[str, Any]
    specific: Mapping[str, Mapping[str, Any]]
    sample: CrawlSample = field(repr=False)

    def as_event(self) -> dict[str, Any]:
        """Return it as the event."""
        return {
            "event": self.EVENT,
            "time": self.time,
            "spider": self.sample.spider,
            "interval_s": self.interval_s,
            "general": self.general,
            "specific": self.specific,
        }


def snapshot(before: CrawlSample, sample: CrawlSample) -> Snapshot | None:
    """Return what happened from `before` to `sample`; None when no time has passed, or they are not of the same
    shards.
    """
    interval = sample.overview.now - before.overview.now
    if interval <= 0 or list(before.shards) != list(sample.shards):
        return None
    specific = {name: _specific(source, before, interval) for name, source in sorted(sample.sources.items())}
    return Snapshot(sample.time, round(interval, 3), _general(sample, before, interval), specific, sample)


def _general(sample: CrawlSample, before: CrawlSample, interval: float) -> dict[str, Any]:
    overview, totals = sample.overview, sample.overview.totals

    def grown(name: str) -> int:
        return increase(before.overview.totals.get(name, 0), totals.get(name, 0))

    def rate(*names: str) -> float:
        return round(sum(map(grown, names)) / interval, 3)

    def quantiles(name: str) -> dict[str, Any]:
        taken = list(map(increase, histogram(before.overview.totals, name), histogram(totals, name)))
        return {
            f"{name}_p{percent}_s": quantile(percent / 100, taken, HISTOGRAMS[name]) for percent in (50, 95, 99)
        }

    success, error = rate(*SUCCESSES), rate(*(f"error_{kind}" for kind in SITE_ERRORS))
    link_rot = rate("link_rot")
    rows = list(sample.sources.values())
    for_a_while = sorted(set(overview.halted_for_a_while) - set(overview.halted))
    needs_attention = {
        "error_rps": error > _MANY_ERRORS * (success + link_rot + error),
        "circuit_breaker_tripped": overview.halted,
        "circuit_breaker_open": for_a_while,
        "workers": not overview.alive,
        "paused": overview.pause.reason,
        "shards_stopped": sample.stopped,
    }
    return {
        "global_max_rps": sample.limits,
        "success_rps": success,
        "error_rps": error,
        "processing_rate": round(success + error, 3),
        "circuit_breaker_tripped": overview.halted,
        "circuit_breaker_open": for_a_while,
        "num_resized": totals.get("thumbnails", 0),
        "resize_errors": totals.get("error_decode", 0),
        "responses": totals.get("responses", 0),
        "items": totals.get("items", 0),
        "split_rate": rate("admitted"),
        "link_rot_rps": link_rot,
        "dead_rps": rate("failed"),
        "robots_rps": rate("error_robots"),
        "opt_out_rps": rate("error_opt_out"),
        "refused_rps": rate("error_refused"),
        "retry_rps": rate("retried"),
        "bytes": totals.get("bytes", 0),
        "bytes_per_s": rate("bytes"),
        **quantiles("latency"),
        **quantiles("fetch"),
        **quantiles("parse"),
        "errors": _errors(totals),
        "errors_now": {kind: count for kind in ERROR_KINDS if (count := grown(f"error_{kind}"))},
        "outstanding": overview.outstanding,
        "in_flight": sample.in_flight.requests,
        "dead": overview.dead,
        "seeds_waiting": overview.seeds + overview.overflow,
        "eta_s": eta(sample),
        "workers": overview.alive,
        "sources": overview.known,
        "sources_in_progress": overview.due
        + sum(1 for row in rows if row.in_flight and not row.queued + row.delayed),
        "sources_in_flight": sample.in_flight.sources,
        "domains_in_flight": sample.in_flight.domains,
        "sources_listed": len(rows),
        "exclusions": overview.excluded,
        "excluded": totals.get("excluded", 0),
        "purged": totals.get("purged", 0),
        "links_rps": rate(*LINKS),
        **{name: totals.get(name, 0) for name in LINKS},
        "not_html": not_html(totals),
        "waiting": overview.overflow,
        "spilled": overview.spilled,
        "overflow_lost": totals.get("overflow_lost", 0),
        "sources_due": overview.ready,
        "redis_bytes": overview.redis_bytes,
        "paused": overview.pause.reason or None,
        "shards_stopped": {str(number): reason for number, reason in sample.stopped.items()},
        "trouble": [key for key, needed in needs_attention.items() if needed],
    }


def _specific(row: SourceRow, before: CrawlSample, interval: float) -> dict[str, Any]:
    counts = _counts(row)
    then = None  # where it was not looked at
    if (found := before.sources.get(row.source)) is not None:
        then = _counts(found)
    elif len(before.sources) >= before.overview.known:
        then = {}

    def grown(*names: str) -> int:
        return sum(increase((then or {}).get(name, 0), counts.get(name, 0)) for name in names)

    def rate(*names: str) -> float | None:
        return None if then is None else round(grown(*names) / interval, 3)

    said = row.public()
    for name in ("source", "next_slot_s", "hosts"):
        del said[name]
    answers = 0 if then is None else grown("answers")
    return said | {
        "work": row.work,
        "trouble": row.trouble,
        "error": row.errors,
        "last_50_statuses": row.status.statuses,
        "success_rps": rate(*SUCCESSES),
        "error_rps": rate("errors"),
        "link_rot_rps": rate("link_rot"),
        "link_rot": counts.get("link_rot", 0),
        "dead": row.status.dead,
        "bytes": counts.get("bytes", 0),
        "latency_mean_s": round(grown("latency_us") / answers / 1e6, 6) if answers else None,
        "fetch_p50_s": quantile(0.5, row.status.fetches),
        "fetch_p99_s": quantile(0.99, row.status.fetches),
        "errors": _errors(counts),
    }


def _counts(row: SourceRow) -> dict[str, int]:
    return {**row.status.counts, "errors": row.errors}


def _errors(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the errors by kind, without kinds that have not occurred."""
    return {kind: count for kind in ERROR_KINDS if (count := counts.get(f"error_{kind}", 0))}


def not_html(totals: Mapping[str, int]) -> dict[str, int]:
    """Return the links that have led to no HTML, by type, without types that have not occurred."""
    return {name: count for name in NOT_HTML_TYPES if (count := totals.get(f"not_html_{name}", 0))}


def increase(before: int, now: int) -> int:
    """Return by how much a counter has grown; if it is smaller now, it restarted from 0, as for Prometheus."""
    return now - before if now >= before else max(now, 0)


def eta(sample: CrawlSample) -> float | None:
    """Return the seconds until the slowest of the sources being crawled has done its work.

    Seeds in the list have no source yet: each source is taken to have as large a share of them as it has of the
    work in the frontier. 0 without work, None when there is some and nothing goes out, or nothing but such seeds.
    """
    overview = sample.overview
    rows = list(sample.sources.values())
    if not overview.outstanding and not overview.seeds:
        return 0.0
    if overview.pause.reason:
        return None
    work = overview.outstanding + overview.overflow
    times = [
        row.eta_s + overview.seeds * (row.work / work) * max(1 / row.effective_rate, row.delay_s)
        for row in rows
        if row.eta_s and row.effective_rate > 0 and work
    ]
    return max(times, default=None)


def quantile(part: float, buckets: Sequence[int], bounds: Sequence[float] = LATENCY_BOUNDS) -> float | None:
    """Return the value that `part` of the observations do not exceed; None without any.

    `buckets` counts those up to each of `bounds`, and those beyond. Within a bucket they count as spread evenly;
    of the last one nothing is known but its lower bound (histogram_quantile of Prometheus does the same).
    """
    total = sum(buckets)
    if not total:
        return None
    rank, passed = part * total, 0
    for index, count in enumerate(buckets[:-1]):
        if count and passed + count >= rank:
            low = bounds[index - 1] if index else 0.0
            return round(low + (bounds[index] - low) * max(rank - passed, 0.0) / count, 6)
        passed += count
    return bounds[-1]
