"""What Prometheus sees: https://prometheus.io/docs/instrumenting/writing_exporters/ ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from crawlproject.politeness.outcomes import ERROR_KINDS
from crawlproject.state.scripts import LATENCY_BOUNDS
from crawlproject.status.snapshot import Sample, SourceSample, increase

MOST_SOURCES = 100  # with a label of their own
OTHER = "other"  # the label of all others, and so of a source that is called that
_STALE = 30.0  # seconds after which a reading tells nothing any more
_STATES = ("closed", "open", "half_open", "halted")


class _Count(NamedTuple):
    """A counter: the count it comes from (of the source, and in all), its name, and its help."""

    stat: str
    name: str
    help: str


_COUNTS = (
    _Count("fetched", "crawl_fetched", "Responses of sources, errors among them."),
    _Count("thumbnails", "crawl_images", "Pictures fetched, read and stored."),
    _Count("link_rot", "crawl_link_rot", "Pictures that are gone (404, 410)."),
    _Count("failed", "crawl_failed", "Requests that became dead letters."),
    _Count("retried", "crawl_retried", "Attempts that failed and are made again."),
    _Count("bytes", "crawl_image_bytes", "Bytes of the pictures that were stored."),
)
_TOTALS = (
    _Count("admitted", "crawl_seeds_admitted", "Seeds that went into the frontier."),
    _Count("duplicates", "crawl_seeds_duplicate", "Seeds that had been there before."),
    _Count("refused", "crawl_seeds_refused", "Seeds that became dead letters at once."),
    _Count("deliveries_lost", "crawl_deliveries_lost", "Leases lost with their worker."),
    _Count("events_trimmed", "crawl_events_trimmed", "Events dropped from the streams before anybody read them."),
)
_BY_SOURCE: tuple[tuple[str, str, Callable[[SourceSample], float | None]], ...] = (
    ("crawl_rate_limit", "Limit in force, in requests a second.", lambda one: one.row.rate_limit),
    ("crawl_effective_rate", "What is left of the limit at present.", lambda one: one.row.effective_rate),
    ("crawl_queued_requests", "Requests that wait for a slot.", lambda one: one.row.queued),
    ("crawl_delayed_requests", "Requests that wait for their retry.", lambda one: one.row.delayed),
    ("crawl_in_flight_requests", "Requests that workers hold.", lambda one: one.row.in_flight),
    ("crawl_dead_letters", "Dead letters at present.", lambda one: one.dead),
    ("crawl_eta_seconds", "Time until its work is done; none: nothing goes out.", lambda one: one.row.eta_s),
)


class CrawlCollector(Collector):
    """The whole crawl, from the latest reading of this process's monitor; nothing while it has none.

    Up to 100 sources have labels of their own, those with the most results; one that has neither work nor results
    makes way for a busier one. What the others have done counts under `other`, which goes by increases: it never
    falls, whoever gets a label.
    """

    def __init__(self, spider: str, latest: Callable[[], Sample | None], most: int = MOST_SOURCES) -> None:
        self.spider = spider
        self._latest = latest
        self._most = most
        self._seen: Sample | None = None
        self._labelled: list[str] = []
        self._others: dict[str, int] = {}

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what is collected is known only when it is."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the latest reading."""
        reading = self._latest()
        if reading is None:
            return
        yield self._gauge("crawl_reading_timestamp_seconds", "When this was read.", _moment(reading))
        if time.time() - _moment(reading) > _STALE:
            return
        if reading is not self._seen:
            self._observe(reading)
        labelled = {name: reading.sources[name] for name in self._labelled if name in reading.sources}
        yield from self._of_sources(labelled)
        yield from self._of_all(reading)

    # Labels

    def _observe(self, reading: Sample) -> None:
        """Choose who has a label, and count what the others have done since the last reading."""
        before, self._seen = self._seen, reading
        self._choose(before, reading)
        totals = {} if before is None else before.survey.totals
        then = {} if before is None else before.sources
        counts = [one.stat for one in _COUNTS] + [f"error_{kind}" for kind in ERROR_KINDS]
        for count in ("answers", "latency_us", *counts):
            grown = increase(totals.get(count, 0), reading.survey.totals.get(count, 0))
            theirs = sum(
                increase(then[name].counts.get(count, 0) if name in then else 0, one.counts.get(count, 0))
                for name, one in ((name, reading.sources[name]) for name in self._labelled)
            )
            self._others[count] = self._others.get(count, 0) + max(grown - theirs, 0)

    def _choose(self, before: Sample | None, reading: Sample) -> None:
        def busy(name: str) -> int:
            """Count its results since the last reading, or its work."""
            now = reading.sources[name]
            then = before.sources.get(name) if before is not None else None
            done = increase(_results(then), _results(now)) if then is not None else _results(now)
            return done or now.row.queued + now.row.delayed + now.row.in_flight

        present = [name for name in self._labelled if name in reading.sources and busy(name)]
        idle = [name for name in self._labelled if name in reading.sources and name not in present]
        new = (name for name in reading.sources if name not in self._labelled and name != OTHER)
        waiting = sorted(new, key=lambda name: (-busy(name), name))
        busy_ones = [name for name in waiting if busy(name)]
        quiet = [name for name in waiting if not busy(name)]
        self._labelled = (present + busy_ones + idle + quiet)[: self._most]

    # Metrics

    def _of_sources(self, labelled: Mapping[str, SourceSample]) -> Iterable[Metric]:
        who = ("spider", "source")
        for count, name, text in _COUNTS:
            counter = CounterMetricFamily(name, text, labels=who)
            for source, one in labelled.items():
                counter.add_metric((self.spider, source), one.counts.get(count, 0))
            counter.add_metric((self.spider, OTHER), self._others.get(count, 0))
            yield counter
        errors = CounterMetricFamily("crawl_errors", "Attempts that failed, by kind.", labels=(*who, "kind"))
        for kind in ERROR_KINDS:
            for source, one in labelled.items():
                if number := one.counts.get(f"error_{kind}"):
                    errors.add_metric((self.spider, source, kind), number)
            errors.add_metric((self.spider, OTHER, kind), self._others.get(f"error_{kind}", 0))
        yield errors
        latency = SummaryMetricFamily("crawl_source_latency_seconds", "Time to the first byte.", labels=who)
        for source, one in labelled.items():
            micros = one.counts.get("latency_us", 0)
            latency.add_metric((self.spider, source), one.counts.get("answers", 0), micros / 1e6)
        micros = self._others.get("latency_us", 0)
        latency.add_metric((self.spider, OTHER), self._others.get("answers", 0), micros / 1e6)
        yield latency
        for name, text, value_of in _BY_SOURCE:
            gauge = GaugeMetricFamily(name, text, labels=who)
            for source, one in labelled.items():
                if (value := value_of(one)) is not None:
                    gauge.add_metric((self.spider, source), value)
            yield gauge
        state = GaugeMetricFamily("crawl_source_state", "1 for the state of its circuit.", labels=(*who, "state"))
        for source, one in labelled.items():
            for name in _STATES:
                state.add_metric((self.spider, source, name), float(one.row.state == name))
        yield state

    def _of_all(self, reading: Sample) -> Iterable[Metric]:
        survey, labels = reading.survey, ("spider",)
        for count, name, text in _TOTALS:
            counter = CounterMetricFamily(name, text, labels=labels)
            counter.add_metric((self.spider,), survey.totals.get(count, 0))
            yield counter
        latency = HistogramMetricFamily("crawl_latency_seconds", "Time to the first byte.", labels=labels)
        bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(survey.latencies)), strict=True))
        latency.add_metric((self.spider,), buckets, survey.totals.get("latency_us", 0) / 1e6)
        yield latency
        for name, text, value in (
            ("crawl_outstanding_requests", "Requests queued, delayed or leased.", survey.outstanding),
            ("crawl_leased_requests", "Requests that workers hold, of all sources.", reading.in_flight),
            ("crawl_waiting_seeds", "Seeds not yet read.", survey.seeds),
            ("crawl_all_dead_letters", "Dead letters at present, of all sources.", survey.dead),
            ("crawl_workers", "Workers alive.", survey.alive),
            ("crawl_sources", "Sources known.", survey.known),
            ("crawl_halted_sources", "Sources halted until an operator acts.", len(survey.halted)),
            ("crawl_tripped_sources", "Sources halted for a while.", len(survey.halted_for_a_while)),
            ("crawl_pulse", "1 while somebody leads; 0: nothing goes out.", int(survey.pulse)),
            ("crawl_paused", "1 while nothing is leased, see the log.", int(bool(survey.paused))),
        ):
            yield self._gauge(name, text, value)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(name, text, labels=("spider",))
        gauge.add_metric((self.spider,), value)
        return gauge


def _moment(reading: Sample) -> float:
    return datetime.fromisoformat(reading.time).timestamp()


def _results(one: SourceSample | None) -> int:
    return 0 if one is None else one.row.successful + one.row.failed


class WorkerCollector(Collector):
    """What one worker does, from its own counters. `value` returns one by its name in Scrapy's stats."""

    COUNTERS = (
        _Count("frontier/started", "crawl_worker_started", "Requests that this worker has started."),
        _Count("downloader/response_bytes", "crawl_worker_received_bytes", "Bytes of responses, as they came."),
        _Count("frontier/faults", "crawl_worker_faults", "Requests that went back for trouble of our own."),
        _Count("store/returned", "crawl_worker_store_returned", "Pictures that went back: the store was down."),
    )

    def __init__(self, spider: str, value: Callable[[str], float], leases: Callable[[], int]) -> None:
        self.spider = spider
        self._value = value
        self._leases = leases

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what is collected is known only when it is."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the worker's metrics."""
        for stat, name, text in self.COUNTERS:
            counter = CounterMetricFamily(name, text, labels=("spider",))
            counter.add_metric((self.spider,), self._value(stat))
            yield counter
        gauge = GaugeMetricFamily("crawl_worker_leases", "Leases that this worker holds.", labels=("spider",))
        gauge.add_metric((self.spider,), self._leases())
        yield gauge


def registry(*collectors: Collector) -> CollectorRegistry:
    """Return a registry of `collectors` and of what this process uses (CPU, memory, files, garbage)."""
    one = CollectorRegistry()
    ProcessCollector(registry=one)
    PlatformCollector(registry=one)
    GCCollector(registry=one)
    for collector in collectors:
        one.register(collector)
    return one
