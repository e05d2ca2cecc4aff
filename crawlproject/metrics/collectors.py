"""What Prometheus sees: https://prometheus.io/docs/instrumenting/writing_exporters/ ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
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
from crawlproject.state.scripts import LATENCY_BOUNDS, PARSE_BOUNDS
from crawlproject.status.histogram import quantile
from crawlproject.status.reporter import STALE_S
from crawlproject.status.snapshot import LINKS, CrawlSample, SourceSample, increase

MOST_SOURCES = 100  # with a label of their own
OTHER = "other"  # the label of all others, and so of a source that is called that
_QUANTILES = (0.5, 0.99)
_STATES = ("closed", "open", "half_open", "halted", "excluded")


class _Count(NamedTuple):
    """A counter: the count it comes from (of the source, and in all), its name, and its help."""

    stat: str
    name: str
    help: str


_COUNTS = (
    _Count("fetched", "crawl_fetched", "Responses of sources, errors among them."),
    _Count("thumbnails", "crawl_images", "Images fetched, read and stored."),
    _Count("probes", "crawl_probes", "Images probed, and there."),
    _Count("pages", "crawl_pages", "Pages fetched and read."),
    _Count("link_rot", "crawl_link_rot", "Images that are gone (404, 410, or as the catalogue says)."),
    _Count("failed", "crawl_failed", "Requests that became dead letters."),
    _Count("retried", "crawl_retried", "Failed attempts that are retried."),
    _Count(
        "bytes",
        "crawl_image_bytes",
        "Bytes of images stored or probed, or of the pages that were read.",
    ),
)
_TOTALS = (
    _Count("admitted", "crawl_seeds_admitted", "Seeds that went into the frontier."),
    _Count("duplicates", "crawl_seeds_duplicate", "Duplicate seeds, dropped."),
    _Count("refused", "crawl_seeds_refused", "Seeds that became dead letters at once."),
    _Count("excluded", "crawl_excluded", "Requests and seeds dropped because they are excluded."),
    _Count("purged", "crawl_purged", "Requests dropped by scrapy purge."),
    _Count("deliveries_lost", "crawl_deliveries_lost", "Leases lost with their worker."),
    _Count("mended", "crawl_mended", "Entries of the frontier's indexes and counters that the audit has mended."),
    _Count("events_trimmed", "crawl_events_trimmed", "Events dropped from the streams unread."),
    _Count("overflow_lost", "crawl_overflow_lost", "Requests lost with what they were spilled to."),
)
_BY_SOURCE: tuple[tuple[str, str, Callable[[SourceSample], float | None]], ...] = (
    ("crawl_rate_limit", "Limit in force, in requests a second.", lambda source: source.row.rate_limit),
    (
        "crawl_effective_rate",
        "What is left of the limit after back-off and robots.txt delays.",
        lambda source: source.row.effective_rate,
    ),
    ("crawl_queued_requests", "Requests that wait for a slot.", lambda source: source.row.queued),
    ("crawl_overflow_requests", "Requests beyond its window.", lambda source: source.row.waiting),
    ("crawl_delayed_requests", "Requests that wait for their retry.", lambda source: source.row.delayed),
    ("crawl_in_flight_requests", "Requests that workers hold.", lambda source: source.row.in_flight),
    ("crawl_dead_letters", "Dead letters at present.", lambda source: source.dead),
    (
        "crawl_eta_seconds",
        "Time until its work is done; absent while nothing goes out.",
        lambda source: source.row.eta_s,
    ),
)


class CrawlCollector(Collector):
    """The whole crawl, from the latest sample of this process; nothing before the first.

    Up to 100 sources have labels of their own, those with the most results; a source without work and
    results gives its labels to a busier one. The others count under `other`, which adds up their increases: it
    never falls, whichever sources have labels.
    """

    def __init__(self, spider: str, latest: Callable[[], CrawlSample | None], most: int = MOST_SOURCES) -> None:
        self.spider = spider
        self._latest = latest
        self._most = most
        self._seen: CrawlSample | None = None
        self._labelled: list[str] = []
        self._others: dict[str, int] = {}

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are known only when they are collected."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the latest sample."""
        sample = self._latest()
        if sample is None:
            return
        yield self._gauge("crawl_reading_timestamp_seconds", "Time of this sample.", _moment(sample))
        if time.time() - _moment(sample) > STALE_S:
            return
        if sample is not self._seen:
            self._observe(sample)
        labelled = {name: sample.sources[name] for name in self._labelled if name in sample.sources}
        yield from self._of_sources(labelled, sample.overview.halted)
        yield from self._of_all(sample)

    # Labels

    def _observe(self, sample: CrawlSample) -> None:
        """Choose the labelled sources, and count what the others have done since the last sample."""
        before, self._seen = self._seen, sample
        self._choose(before, sample)
        totals = {} if before is None else before.overview.totals
        then = {} if before is None else before.sources
        counts = [count.stat for count in _COUNTS] + [f"error_{kind}" for kind in ERROR_KINDS] + list(LINKS)
        for count in ("answers", "latency_us", *counts):
            grown = increase(totals.get(count, 0), sample.overview.totals.get(count, 0))
            theirs = sum(
                increase(
                    then[name].counts.get(count, 0) if name in then else 0,
                    sample.sources[name].counts.get(count, 0),
                )
                for name in self._labelled
            )
            self._others[count] = self._others.get(count, 0) + max(grown - theirs, 0)

    def _choose(self, before: CrawlSample | None, sample: CrawlSample) -> None:
        def busy(name: str) -> int:
            """Count its results since the last sample, or its work."""
            now = sample.sources[name]
            then = before.sources.get(name) if before is not None else None
            done = increase(_results(then), _results(now)) if then is not None else _results(now)
            return done or now.row.work

        present = [name for name in self._labelled if name in sample.sources and busy(name)]
        idle = [name for name in self._labelled if name in sample.sources and name not in present]
        new = (name for name in sample.sources if name not in self._labelled and name != OTHER)
        waiting = sorted(new, key=lambda name: (-busy(name), name))
        busier = [name for name in waiting if busy(name)]
        quiet = [name for name in waiting if not busy(name)]
        self._labelled = (present + busier + idle + quiet)[: self._most]

    # Metrics

    def _of_sources(self, labelled: Mapping[str, SourceSample], halted_sources: Sequence[str]) -> Iterable[Metric]:
        who = ("spider", "source")
        for count, metric, text in _COUNTS:
            counter = CounterMetricFamily(metric, text, labels=who)
            for name, source in labelled.items():
                counter.add_metric((self.spider, name), source.counts.get(count, 0))
            counter.add_metric((self.spider, OTHER), self._others.get(count, 0))
            yield counter
        yield self._split(
            labelled,
            "crawl_errors",
            "Attempts that failed, by kind.",
            "kind",
            [f"error_{one}" for one in ERROR_KINDS],
        )
        text = "Links found that belong to it, by what became of them."
        yield self._split(labelled, "crawl_source_links", text, "result", LINKS)
        latency = SummaryMetricFamily("crawl_source_latency_seconds", "Time to the first byte.", labels=who)
        for name, source in labelled.items():
            micros = source.counts.get("latency_us", 0)
            latency.add_metric((self.spider, name), source.counts.get("answers", 0), micros / 1e6)
        micros = self._others.get("latency_us", 0)
        latency.add_metric((self.spider, OTHER), self._others.get("answers", 0), micros / 1e6)
        yield latency
        yield self._fetches(labelled)
        for metric, text, value_of in _BY_SOURCE:
            gauge = GaugeMetricFamily(metric, text, labels=who)
            for name, source in labelled.items():
                if (value := value_of(source)) is not None:
                    gauge.add_metric((self.spider, name), value)
            yield gauge
        state = GaugeMetricFamily("crawl_source_state", "1 for the state of its circuit.", labels=(*who, "state"))
        for name, source in labelled.items():
            for possible in _STATES:
                state.add_metric((self.spider, name, possible), float(source.row.state == possible))
        yield state
        halted = GaugeMetricFamily(
            "crawl_source_halted", "1 for each source that waits for its operator.", labels=who
        )
        for name in halted_sources:
            halted.add_metric((self.spider, name), 1.0)
        yield halted

    def _split(
        self, labelled: Mapping[str, SourceSample], name: str, text: str, label: str, counts: Sequence[str]
    ) -> Metric:
        """Return one metric for several counts, whose names have the value of `label` behind their first `_`."""
        counter = CounterMetricFamily(name, text, labels=("spider", "source", label))
        for count in counts:
            value = count.partition("_")[2]
            for source, sample in labelled.items():
                if number := sample.counts.get(count):
                    counter.add_metric((self.spider, source, value), number)
            counter.add_metric((self.spider, OTHER, value), self._others.get(count, 0))
        return counter

    def _fetches(self, labelled: Mapping[str, SourceSample]) -> Metric:
        # prometheus_client's own class for summaries knows no quantiles
        name, text = (
            "crawl_source_fetch_seconds",
            "Time of whole fetches, time-outs included, of the last minutes.",
        )
        fetch = Metric(name, text, "summary")
        for source, sample in labelled.items():
            for part in _QUANTILES:
                if (took := quantile(part, sample.fetches)) is not None:
                    labels = {"spider": self.spider, "source": source, "quantile": f"{part:g}"}
                    fetch.add_sample(name, labels, took)
        return fetch

    def _of_all(self, sample: CrawlSample) -> Iterable[Metric]:
        overview, labels = sample.overview, ("spider",)
        for count, name, text in _TOTALS:
            counter = CounterMetricFamily(name, text, labels=labels)
            counter.add_metric((self.spider,), overview.totals.get(count, 0))
            yield counter
        links = CounterMetricFamily(
            "crawl_links", "Links found on pages, by what became of them.", labels=(*labels, "result")
        )
        for count in LINKS:
            links.add_metric((self.spider, count.removeprefix("links_")), overview.totals.get(count, 0))
        yield links
        unread = GaugeMetricFamily(
            "crawl_reader_unread_events",
            "Events that a reader has not read; of the 20 furthest behind.",
            labels=(*labels, "reader"),
        )
        for reader, events in sample.unread.items():
            unread.add_metric((self.spider, reader), events)
        yield unread
        for name, text, buckets, micros, bounds in (
            (
                "crawl_latency_seconds",
                "Time to the first byte.",
                overview.latencies,
                overview.totals.get("latency_us", 0),
                LATENCY_BOUNDS,
            ),
            (
                "crawl_fetch_seconds",
                "Time of whole fetches, to the last byte or the time-out.",
                overview.fetches,
                overview.fetch_us,
                LATENCY_BOUNDS,
            ),
            ("crawl_parse_seconds", "Time of reading a page.", overview.parses, overview.parse_us, PARSE_BOUNDS),
        ):
            yield self._histogram(name, text, buckets, micros, bounds)
        for name, text, value in (
            ("crawl_outstanding_requests", "Requests queued, delayed or leased.", overview.outstanding),
            ("crawl_leased_requests", "Requests that workers hold, of all sources.", sample.in_flight.requests),
            ("crawl_in_flight_sources", "Sources of which workers hold requests.", sample.in_flight.sources),
            ("crawl_in_flight_domains", "Registrable domains to which these go.", sample.in_flight.domains),
            ("crawl_waiting_seeds", "Seeds in the list.", overview.seeds),
            ("crawl_all_overflow_requests", "Requests beyond their sources' windows, of all.", overview.overflow),
            ("crawl_spilled_requests", "Those of them that are in CRAWL_OVERFLOW_STORE.", overview.spilled),
            ("crawl_all_dead_letters", "Dead letters at present, of all sources.", overview.dead),
            ("crawl_feeders", "Processes that feed seeds from files or Kafka.", overview.feeding.processes),
            (
                "crawl_outside_seeds",
                "Seeds that these have left, about; absent if unknown.",
                overview.feeding.left,
            ),
            ("crawl_workers", "Workers alive.", overview.alive),
            ("crawl_sources", "Sources known.", overview.known),
            ("crawl_sources_with_work", "Sources of which requests wait.", overview.due),
            ("crawl_due_sources", "Those of them that are due by now.", overview.ready),
            ("crawl_redis_bytes", "Memory that Redis uses, for all that is in it.", overview.redis_bytes),
            ("crawl_halted_sources", "Sources halted until an operator acts.", len(overview.halted)),
            (
                "crawl_tripped_sources",
                "Sources halted for the open period of their circuit.",
                len(overview.halted_for_a_while),
            ),
            ("crawl_exclusions", "Domains and sources that are excluded.", overview.excluded),
            (
                "crawl_pulse",
                "1 while a leader has set the rates; 0: nothing goes out.",
                int(overview.pause.kind != "no pulse"),
            ),
            (
                "crawl_stopped_shards",
                "Shards of which nothing goes out, or that do not answer.",
                len(sample.stopped),
            ),
            (
                "crawl_paused",
                "1 while unread events or dead letters are at their bound: nothing goes out.",
                int(overview.pause.kind == "paused"),
            ),
        ):
            if value is not None:
                yield self._gauge(name, text, value)

    def _histogram(
        self, name: str, text: str, counts: Sequence[int], micros: int, bounds: Sequence[float]
    ) -> Metric:
        histogram = HistogramMetricFamily(name, text, labels=("spider",))
        names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(counts)), strict=True))
        histogram.add_metric((self.spider,), buckets, micros / 1e6)
        return histogram

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(name, text, labels=("spider",))
        gauge.add_metric((self.spider,), value)
        return gauge


def _moment(sample: CrawlSample) -> float:
    return datetime.fromisoformat(sample.time).timestamp()


def _results(source: SourceSample | None) -> int:
    return 0 if source is None else source.row.successful + source.row.failed


class CrawlsCollector(Collector):
    """The crawls of several spiders: `latest` returns the latest sample of each by name, None before its first."""

    def __init__(self, latest: Callable[[], Mapping[str, CrawlSample | None]]) -> None:
        self._latest = latest
        self._crawls: dict[str, CrawlCollector] = {}

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are known only when they are collected."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return each metric once, with the samples of all spiders."""
        merged: dict[str, Metric] = {}
        for spider in self._latest():
            if spider not in self._crawls:
                self._crawls[spider] = CrawlCollector(spider, partial(self._sample, spider))
            for metric in self._crawls[spider].collect():
                if metric.name in merged:
                    merged[metric.name].samples += metric.samples
                else:
                    merged[metric.name] = metric
        return merged.values()

    def _sample(self, spider: str) -> CrawlSample | None:
        return self._latest().get(spider)


class WorkerCollector(Collector):
    """What one worker does, from its own counters. `value` returns a counter by its name in Scrapy's stats."""

    COUNTERS = (
        _Count("frontier/started", "crawl_worker_started", "Requests that this worker has started."),
        _Count("downloader/response_bytes", "crawl_worker_received_bytes", "Bytes of responses, as they came."),
        _Count(
            "frontier/faults", "crawl_worker_faults", "Requests returned to the frontier after an internal fault."
        ),
        _Count(
            "store/returned",
            "crawl_worker_store_returned",
            "Images returned to the frontier because storage was unavailable.",
        ),
    )

    def __init__(self, spider: str, value: Callable[[str], float], leases: Callable[[], int]) -> None:
        self.spider = spider
        self._value = value
        self._leases = leases

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are known only when they are collected."""
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
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    for collector in collectors:
        made.register(collector)
    return made
