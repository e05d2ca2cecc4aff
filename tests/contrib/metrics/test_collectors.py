"""What Prometheus sees of samples, one after the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from crawlproject.contrib.metrics.collectors import OTHER, CrawlCollector, registry
from crawlproject.politeness.outcomes import NOT_HTML_TYPES
from crawlproject.state.calls import PARSE_BOUNDS
from crawlproject.status.snapshot import CrawlSample
from tests.status.test_snapshot import BUCKETS, sample_at, source


def scraped(samples: Mapping[str, CrawlSample | None]) -> str:
    return generate_latest(registry(CrawlCollector(lambda: samples, 2))).decode()


def found(text: str, name: str, *labels: str) -> dict[Any, float]:
    """Return the values of a metric, by some of its labels: by a tuple if they are several."""
    values = {
        tuple(each.labels[label] for label in labels): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == name
    }
    return {key[0] if len(labels) == 1 else key: value for key, value in values.items()}


class Looking:
    """A collector with labels for a few sources."""

    def __init__(self, most: int = 2) -> None:
        self.sample: CrawlSample | None = None
        self.registry = registry(CrawlCollector(lambda: {"images": self.sample}, most))

    def look(self, now: float, total: int, **images: int) -> dict[str, float]:
        """Return `crawl_images_total` by source."""
        sources = [source(name, successful=count, counts={"answers": count}) for name, count in images.items()]
        self.sample = sample_at(now, *sources, totals={"thumbnails": total, "answers": total})
        return found(generate_latest(self.registry).decode(), "crawl_images_total", "source")


def test_the_busiest_have_labels_and_the_others_count_together() -> None:
    scrape = Looking()
    assert scrape.look(1, 16, a=10, b=5, c=1) == {"a": 10, "b": 5, OTHER: 1}
    assert scrape.look(2, 33, a=11, b=8, c=14) == {"a": 11, "b": 8, OTHER: 14}
    assert scrape.look(3, 34, b=8, c=15) == {"b": 8, OTHER: 15}  # a was not looked at: it had 11 by then
    assert scrape.look(4, 38, a=14, b=8, c=15) == {"a": 14, "b": 8, OTHER: 16}  # 2 more since


def test_a_source_without_results_makes_way() -> None:
    scrape = Looking()
    assert scrape.look(1, 0, a=0, b=0, c=0) == {"a": 0, "b": 0, OTHER: 0}
    assert scrape.look(2, 3, a=0, b=0, c=3) == {"a": 0, "c": 3, OTHER: 0}
    assert Looking().look(1, 3, **{OTHER: 3}) == {OTHER: 3}  # whoever is called so is one of them


@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_counter_falls_whichever_sources_have_labels(most: int) -> None:
    scrape, counts = Looking(most), {"a": 7, "b": 0, "c": 0, "d": 0}
    before = scrape.look(0, 7, **counts)
    assert sum(before.values()) == 7
    for step in range(20):
        counts["abcd"[step % 4 if step < 10 else step % 2 + 2]] += step
        after = scrape.look(step + 1, sum(counts.values()), **counts)
        assert len(after) == most + 1
        assert all(after[name] >= value for name, value in before.items() if name in after)
        before = after
    if most == len(counts):
        assert before == {**counts, OTHER: 0}


def test_each_halted_source_is_named_with_or_without_labels_of_its_own() -> None:
    names = [f"s{number}" for number in range(300)]
    text = scraped({"images": sample_at(1.0, *(source(name, successful=1) for name in "abc"), halted=names)})
    assert found(text, "crawl_source_halted", "source") == dict.fromkeys(names, 1)


def test_how_long_whole_fetches_take_is_shown_of_all_and_of_sources_with_labels() -> None:
    taken = [0] * BUCKETS
    taken[7] = 3
    sources = (source(name, successful=number, fetches=taken) for number, name in enumerate("abc"))
    text = scraped({"images": sample_at(1.0, *sources, fetches=taken, totals={"fetch_us": 1_500_000})})
    quantiles = {(name, part): took for name in "bc" for part, took in (("0.5", 0.5), ("0.99", 0.598))}
    assert found(text, "crawl_source_fetch_seconds", "source", "quantile") == quantiles
    assert [found(text, f"crawl_fetch_seconds_{part}")[()] for part in ("count", "sum")] == [3, 1.5]


def test_the_fate_of_links_and_the_reach_of_the_frontier_are_exported() -> None:
    parses = [0] * (len(PARSE_BOUNDS) + 1)
    parses[0], parses[2] = 3, 1
    links = {"admitted": 5, "known": 70, "over_budget": 6, "without_room": 4, "refused": 0, "excluded": 0}
    totals = {f"links_{name}": number for name, number in links.items()} | {"overflow_lost": 2, "parse_us": 2_500}
    totals |= {"not_html_pdf": 3}
    of_a = source("a", successful=1, counts={"links_known": 60})
    one = sample_at(1.0, of_a, totals=totals, parses=parses, due=9, ready=4)
    text = scraped({"pages": replace(one, spider="pages")})
    assert found(text, "crawl_links_total", "result") == links
    assert found(text, "crawl_not_html_total", "type") == {**dict.fromkeys(NOT_HTML_TYPES, 0), "pdf": 3}
    of_sources = found(text, "crawl_source_links_total", "source", "result")
    assert (of_sources["a", "known"], of_sources[OTHER, "known"], of_sources[OTHER, "admitted"]) == (60, 10, 5)
    for name, value in (
        ("crawl_parse_seconds_count", 4),
        ("crawl_parse_seconds_sum", 0.0025),
        ("crawl_sources_with_work", 9),
        ("crawl_due_sources", 4),
        ("crawl_overflow_lost_total", 2),
    ):
        assert found(text, name) == {(): value}
    below = found(text, "crawl_parse_seconds_bucket", "le")
    assert (below["0.001"], below["0.002"], below["+Inf"]) == (3, 4, 4)


def test_of_several_spiders_each_metric_is_written_once() -> None:
    museum = sample_at(1.0, source("museum", successful=3))
    text = scraped({"images": museum, "pages": replace(museum, spider="pages"), "new": None})
    assert max(Counter(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)).values()) == 1
    assert [*found(text, "crawl_queued_requests", "spider")] == ["images", "pages"]


def test_of_an_old_reading_only_its_time_is_left() -> None:
    old = replace(sample_at(1.0, source("a")), time="2026-01-01T00:00:00.000+00:00")
    lines = scraped({"images": old}).splitlines()
    assert [line.partition("{")[0] for line in lines if line.startswith("crawl_")] == [
        "crawl_reading_timestamp_seconds"
    ]


def test_each_reader_of_the_events_tells_how_far_it_is_behind() -> None:
    unread = {"archive": 12_000, 'a "b"}\\': 0}
    text = scraped({"images": replace(sample_at(1.0), unread=unread)})
    assert found(text, "crawl_reader_unread_events", "reader") == unread
