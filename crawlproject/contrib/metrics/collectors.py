"""What Prometheus sees: https://prometheus.io/docs/instrumenting/writing_exporters/ ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from itertools import accumulate
from operator import attrgetter

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from crawlproject.politeness.outcomes import ERROR_KINDS, NOT_HTML_TYPES
from crawlproject.state.calls import HISTOGRAMS, histogram
from crawlproject.status.reporter import STALE_S
from crawlproject.status.snapshot import LINKS, CrawlSample, quantile
from crawlproject.status.source_status import SourceRow

MOST_SOURCES = 100  # with a label of their own
OTHER = "other"  # the label of all others, and so of a source that is called that
_STATES = ("closed", "open", "half_open", "halted", "excluded")
_Row = tuple[str, float | None, Mapping[str, str]]  # what is behind the name, the value if there is one, labels

# Of each counter the count that it comes from, its name, and its help: of each source, in all, of a worker.
_OF_SOURCES = (
    ("fetched", "crawl_fetched", "Responses of sources, errors among them."),
    ("thumbnails", "crawl_images", "Images fetched, read and stored."),
    ("probes", "crawl_probes", "Images probed, and there."),
    ("pages", "crawl_pages", "Pages fetched and read."),
    ("responses", "crawl_responses", "Responses (2xx) that callbacks of other spiders have processed."),
    ("items", "crawl_items", "Items that these callbacks have yielded."),
    ("link_rot", "crawl_link_rot", "Images that are gone (404, 410, or as the catalogue says)."),
    ("failed", "crawl_failed", "Requests that became dead letters."),
    ("retried", "crawl_retried", "Failed attempts that are retried."),
    ("bytes", "crawl_image_bytes", "Bytes of images stored or probed, of pages read, or of these responses."),
)
_IN_ALL = (
    ("admitted", "crawl_seeds_admitted", "Seeds that went into the frontier."),
    ("duplicates", "crawl_seeds_duplicate", "Duplicate seeds, dropped."),
    ("refused", "crawl_seeds_refused", "Seeds that became dead letters at once."),
    ("excluded", "crawl_excluded", "Requests and seeds dropped because they are excluded."),
    ("purged", "crawl_purged", "Requests dropped by scrapy purge."),
    ("deliveries_lost", "crawl_deliveries_lost", "Leases lost with their worker."),
    ("mended", "crawl_mended", "Entries of the frontier's indexes and counters that the audit has mended."),
    ("events_trimmed", "crawl_events_trimmed", "Events dropped from the streams unread."),
    ("overflow_lost", "crawl_overflow_lost", "Requests lost with what they were spilled to."),
)
_OF_WORKER = (
    ("frontier/started", "crawl_worker_started", "Requests that this worker has started."),
    ("downloader/response_bytes", "crawl_worker_received_bytes", "Bytes of responses, as they came."),
    ("frontier/faults", "crawl_worker_faults", "Requests returned to the frontier after an internal fault."),
    (
        "store/returned",
        "crawl_worker_store_returned",
        "Images returned to the frontier because storage was unavailable.",
    ),
)

# Gauges: their names, their help, and where the value is; of a list its length counts.
_GAUGES_OF_SOURCES = (
    ("crawl_rate_limit", "Limit in force, in requests a second.", "rate_limit"),
    (
        "crawl_effective_rate",
        "What is left of the limit after back-off and robots.txt delays.",
        "effective_rate",
    ),
    ("crawl_queued_requests", "Requests that wait for a slot.", "queued"),
    ("crawl_overflow_requests", "Requests beyond its window.", "waiting"),
    ("crawl_delayed_requests", "Requests that wait for their retry.", "delayed"),
    ("crawl_in_flight_requests", "Requests that workers hold.", "in_flight"),
    ("crawl_dead_letters", "Dead letters at present.", "status.dead"),
    ("crawl_eta_seconds", "Time until its work is done; absent while nothing goes out.", "eta_s"),
)
_GAUGES = (
    ("crawl_outstanding_requests", "Requests queued, delayed or leased.", "overview.outstanding"),
    ("crawl_leased_requests", "Requests that workers hold, of all sources.", "in_flight.requests"),
    ("crawl_in_flight_sources", "Sources of which workers hold requests.", "in_flight.sources"),
    ("crawl_in_flight_domains", "Registrable domains to which these go.", "in_flight.domains"),
    ("crawl_waiting_seeds", "Seeds in the list.", "overview.seeds"),
    ("crawl_all_overflow_requests", "Requests beyond their sources' windows, of all.", "overview.overflow"),
    ("crawl_spilled_requests", "Those of them that are in CRAWL_OVERFLOW_STORE.", "overview.spilled"),
    ("crawl_all_dead_letters", "Dead letters at present, of all sources.", "overview.dead"),
    ("crawl_workers", "Workers alive.", "overview.alive"),
    ("crawl_sources", "Sources known.", "overview.known"),
    ("crawl_sources_with_work", "Sources of which requests wait.", "overview.due"),
    ("crawl_due_sources", "Those of them that are due by now.", "overview.ready"),
    ("crawl_redis_bytes", "Memory that Redis uses, for all that is in it.", "overview.redis_bytes"),
    ("crawl_halted_sources", "Sources halted until an operator acts.", "overview.halted"),
    (
        "crawl_tripped_sources",
        "Sources halted for the open period of their circuit.",
        "overview.halted_for_a_while",
    ),
    ("crawl_exclusions", "Domains and sources that are excluded.", "overview.excluded"),
    ("crawl_pulse", "1 while a leader has set the rates; 0: nothing goes out.", "has_pulse"),
    ("crawl_stopped_shards", "Shards of which nothing goes out, or that do not answer.", "stopped"),
    (
        "crawl_paused",
        "1 while unread events or dead letters are at their bound: nothing goes out.",
        "is_paused",
    ),
)


class CrawlCollector(Collector):
    """The crawls of all spiders: `latest` returns the latest sample of each by name, None before its first.

    Up to 100 sources of each have labels of their own: the first that have results, and of those that are seen at
    the same time, the ones with the most. The others count together under `other`.
    """

    def __init__(self, latest: Callable[[], Mapping[str, CrawlSample | None]], most: int = MOST_SOURCES) -> None:
        self._latest = latest
        self._most = most
        self._labels: dict[str, _Labels] = {}

    def collect(self) -> Iterable[Metric]:
        """Return each metric once, with the samples of all spiders."""
        merged: dict[str, Metric] = {}
        for spider, sample in self._latest().items():
            if sample is None:
                continue
            labels = self._labels.setdefault(spider, _Labels(self._most))
            for metric in _metrics(spider, sample, labels):
                merged.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                merged[metric.name].samples += metric.samples
        return merged.values()


class _Labels:
    """Which sources of a crawl have labels, and what the others have done."""

    def __init__(self, most: int) -> None:
        self.others: Counter[str] = Counter()
        self._most = most
        self._labelled: dict[str, SourceRow] = {}  # as they were read last

    def of(self, sample: CrawlSample) -> dict[str, SourceRow]:
        """Return the labelled sources of a sample, and count what the others have done by then."""
        new = sample.sources.keys() - self._labelled.keys() - {OTHER}
        rows = sample.sources
        busy = sorted(new, key=lambda name: (-rows[name].successful - rows[name].failed, -rows[name].work, name))
        names = [*self._labelled, *busy[: self._most - len(self._labelled)]]
        found = {name: sample.sources[name] for name in names if name in sample.sources}
        self._labelled |= {name: one for name, one in found.items() if one.status.counts}  # others may make way
        for count, total in sample.overview.totals.items():
            theirs = sum(one.status.counts.get(count, 0) for one in self._labelled.values())
            self.others[count] = max(self.others[count], total - theirs)
        return found


def _metrics(spider: str, sample: CrawlSample, labels: _Labels) -> Iterator[Metric]:
    """Yield the metrics of a sample; of one that is old, its time alone."""
    overview, at = sample.overview, datetime.fromisoformat(sample.time).timestamp()

    def metric(kind: str, name: str, text: str, *rows: _Row) -> Metric:
        made = Metric(name, text, kind)
        for suffix, value, more in rows:
            if value is not None:
                made.add_sample(name + suffix, {"spider": spider, **more}, float(value))
        return made

    yield metric("gauge", "crawl_reading_timestamp_seconds", "Time of this sample.", ("", at, {}))
    if time.time() - at > STALE_S:
        return
    labelled, others = labels.of(sample), {OTHER: labels.others}
    counts: Mapping[str, Mapping[str, int]] = {
        **{name: one.status.counts for name, one in labelled.items()},
        **others,
    }

    def split(name: str, text: str, label: str, names: Iterable[str]) -> Metric:
        """Return one metric for several counts, whose names have the value of `label` behind their first `_`."""
        values = {count: count.partition("_")[2] for count in names}
        rows = (
            ("_total", one.get(count, 0), {"source": source, label: value})
            for count, value in values.items()
            for source, one in counts.items()
            if one.get(count) or source == OTHER
        )
        return metric("counter", name, text, *rows)

    for count, name, text in _OF_SOURCES:
        rows = (("_total", one.get(count, 0), {"source": source}) for source, one in counts.items())
        yield metric("counter", name, text, *rows)
    kinds = [f"error_{kind}" for kind in ERROR_KINDS]
    yield split("crawl_errors", "Attempts that failed, by kind.", "kind", kinds)
    text = "Links found that belong to it, by what became of them."
    yield split("crawl_source_links", text, "result", LINKS)
    answers = (("_count", one.get("answers", 0), {"source": source}) for source, one in counts.items())
    micros = (("_sum", one.get("latency_us", 0) / 1e6, {"source": source}) for source, one in counts.items())
    yield metric("summary", "crawl_source_latency_seconds", "Time to the first byte.", *answers, *micros)
    taken = (
        ("", quantile(part, one.status.fetches), {"source": source, "quantile": f"{part:g}"})
        for source, one in labelled.items()
        for part in (0.5, 0.99)
    )
    text = "Time of whole fetches, time-outs included, of the last minutes."
    yield metric("summary", "crawl_source_fetch_seconds", text, *taken)
    for name, text, path in _GAUGES_OF_SOURCES:
        yield metric(
            "gauge", name, text, *(("", _value(one, path), {"source": source}) for source, one in labelled.items())
        )
    states = (
        ("", one.state == state, {"source": source, "state": state})
        for source, one in labelled.items()
        for state in _STATES
    )
    yield metric("gauge", "crawl_source_state", "1 for the state of its circuit.", *states)
    halted = (("", 1, {"source": source}) for source in overview.halted)
    yield metric("gauge", "crawl_source_halted", "1 for each source that waits for its operator.", *halted)
    for count, name, text in _IN_ALL:
        yield metric("counter", name, text, ("_total", overview.totals.get(count, 0), {}))
    links = (("_total", overview.totals.get(name, 0), {"result": name.removeprefix("links_")}) for name in LINKS)
    yield metric("counter", "crawl_links", "Links found on pages, by what became of them.", *links)
    types = (("_total", overview.totals.get(f"not_html_{one}", 0), {"type": one}) for one in NOT_HTML_TYPES)
    yield metric("counter", "crawl_not_html", "Links that have led to no HTML, by type.", *types)
    text = "Events that a reader has not read; of the 20 furthest behind."
    unread = (("", events, {"reader": reader}) for reader, events in sample.unread.items())
    yield metric("gauge", "crawl_reader_unread_events", text, *unread)
    for name, text in (
        ("latency", "Time to the first byte."),
        ("fetch", "Time of whole fetches, to the last byte or the time-out."),
        ("parse", "Time of reading a page."),
    ):
        buckets, in_all = histogram(overview.totals, name), overview.totals.get(f"{name}_us", 0) / 1e6
        upto = zip((*(f"{bound:g}" for bound in HISTOGRAMS[name]), "+Inf"), accumulate(buckets), strict=True)
        below = (("_bucket", number, {"le": bound}) for bound, number in upto)
        summed: tuple[_Row, ...] = (("_count", sum(buckets), {}), ("_sum", in_all, {}))
        yield metric("histogram", f"crawl_{name}_seconds", text, *below, *summed)
    for name, text, path in _GAUGES:
        yield metric("gauge", name, text, ("", _value(sample, path), {}))


def _value(of: CrawlSample | SourceRow, path: str) -> float | None:
    value = attrgetter(path)(of)
    return float(len(value)) if isinstance(value, Sized) else value


class WorkerCollector(Collector):
    """What one worker does, from its own counters. `value` returns a counter by its name in Scrapy's stats."""

    def __init__(self, spider: str, value: Callable[[str], float], leases: Callable[[], int]) -> None:
        self.spider = spider
        self._value = value
        self._leases = leases

    def collect(self) -> Iterable[Metric]:
        """Yield the worker's metrics."""
        for stat, name, text in _OF_WORKER:
            counter = Metric(name, text, "counter")
            counter.add_sample(f"{name}_total", {"spider": self.spider}, self._value(stat))
            yield counter
        gauge = Metric("crawl_worker_leases", "Leases that this worker holds.", "gauge")
        gauge.add_sample("crawl_worker_leases", {"spider": self.spider}, self._leases())
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
