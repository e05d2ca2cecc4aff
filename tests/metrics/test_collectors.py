"""What Prometheus sees of samples, one after the other."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from crawlproject.metrics.collectors import OTHER, CrawlCollector, registry
from crawlproject.state.scripts import PARSE_BOUNDS
from crawlproject.status.snapshot import CrawlSample
from tests.status.test_snapshot import BUCKETS, sample_at, source


class Scraped:
    """A collector with labels for a few sources, and what a scrape finds."""

    def __init__(self, most: int = 2) -> None:
        self.sample: CrawlSample | None = None
        self.registry = registry(CrawlCollector(lambda: {"images": self.sample}, most))

    def look(self, now: float, total: int, **images: int) -> dict[str, float]:
        """Return `crawl_images_total` by source."""
        sources = [
            source(name, successful=count, counts={"thumbnails": count, "answers": count})
            for name, count in images.items()
        ]
        self.sample = sample_at(now, *sources, totals={"thumbnails": total, "answers": total})
        text = generate_latest(self.registry).decode()
        return {
            sample.labels["source"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "crawl_images_total"
        }


def test_the_busiest_have_labels_and_the_others_count_together() -> None:
    scraped = Scraped()
    assert scraped.look(1, 16, a=10, b=5, c=1) == {"a": 10, "b": 5, OTHER: 1}
    assert scraped.look(2, 33, a=11, b=8, c=14) == {"a": 11, "b": 8, OTHER: 14}
    assert scraped.look(3, 34, b=8, c=15) == {"b": 8, OTHER: 15}  # a was not looked at: it had 11 by then
    assert scraped.look(4, 38, a=14, b=8, c=15) == {
        "a": 14,
        "b": 8,
        OTHER: 16,
    }  # 2 more since


def test_a_source_without_results_makes_way() -> None:
    scraped = Scraped()
    assert scraped.look(1, 0, a=0, b=0, c=0) == {"a": 0, "b": 0, OTHER: 0}
    assert scraped.look(2, 3, a=0, b=0, c=3) == {"a": 0, "c": 3, OTHER: 0}


def test_each_halted_source_is_named_with_or_without_labels_of_its_own() -> None:
    names = [f"s{number}" for number in range(300)]
    one = sample_at(1.0, *(source(name, successful=1) for name in "abc"), halted=names)
    text = generate_latest(registry(CrawlCollector(lambda: {"images": one}, 2))).decode()
    found = {
        sample.labels["source"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "crawl_source_halted" and sample.value == 1
    }
    assert found == set(names)


def test_how_long_whole_fetches_take_is_shown_of_all_and_of_sources_with_labels() -> None:
    taken = [0] * BUCKETS
    taken[7] = 3
    sources = (source(name, successful=number, fetches=taken) for number, name in enumerate("abc"))
    one = sample_at(1.0, *sources, fetches=tuple(taken), fetch_us=1_500_000)
    text = generate_latest(registry(CrawlCollector(lambda: {"images": one}, 2))).decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = {
        (each.labels["source"], each.labels["quantile"]): each.value
        for each in samples
        if each.name == "crawl_source_fetch_seconds"
    }
    assert found == {(name, part): took for name in "bc" for part, took in (("0.5", 0.5), ("0.99", 0.598))}
    whole = {
        each.name.removeprefix("crawl_fetch_seconds_"): each.value
        for each in samples
        if "_fetch_seconds_" in each.name
    }
    assert (whole["count"], whole["sum"]) == (3, 1.5)


def test_what_became_of_links_and_how_far_the_frontier_reaches_is_exported() -> None:
    parses = [0] * (len(PARSE_BOUNDS) + 1)
    parses[0], parses[2] = 3, 1
    totals = {"links_admitted": 5, "links_known": 70, "links_over_budget": 6, "links_without_room": 4}
    totals["overflow_lost"] = 2
    one = sample_at(1.0, totals=totals, parses=tuple(parses), parse_us=2_500, due=9, ready=4, redis_bytes=10**7)
    text = generate_latest(registry(CrawlCollector(lambda: {"pages": replace(one, spider="pages")}))).decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    links = {each.labels["result"]: each.value for each in samples if each.name == "crawl_links_total"}
    assert links == {
        **{"admitted": 5, "known": 70, "over_budget": 6, "without_room": 4},
        **{"refused": 0, "excluded": 0},
    }
    values = {each.name: each.value for each in samples if set(each.labels) == {"spider"}}
    assert (values["crawl_parse_seconds_count"], values["crawl_parse_seconds_sum"]) == (4, 0.0025)
    assert (values["crawl_sources_with_work"], values["crawl_due_sources"]) == (9, 4)
    assert (values["crawl_overflow_lost_total"], values["crawl_redis_bytes"]) == (2, 10**7)
    below = {each.labels["le"]: each.value for each in samples if each.name == "crawl_parse_seconds_bucket"}
    assert (below["0.0005"], below["0.001"], below["0.002"], below["+Inf"]) == (3, 3, 4, 4)


def test_links_are_exported_for_sources_with_labels_and_for_all_others_together() -> None:
    def sample(at: float, more: int) -> CrawlSample:
        links = {"a": {"links_known": 40 + more}, "b": {"links_known": 3 + more, "links_refused": 1}}
        rows = [source(name, successful=number, counts=links[name]) for number, name in enumerate("ba")]
        return sample_at(at, *rows, totals={"links_known": 43 + 2 * more, "links_refused": 1})

    samples = iter([sample(1.0, 0), sample(2.0, 5)])
    made = registry(CrawlCollector(lambda: {"pages": next(samples)}, 1))
    for _ in range(2):
        text = generate_latest(made).decode()
    found = {
        (each.labels["source"], each.labels["result"]): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == "crawl_source_links_total" and each.value
    }
    assert found == {("a", "known"): 45, (OTHER, "known"): 8, (OTHER, "refused"): 1}


def test_of_several_spiders_each_metric_is_written_once() -> None:
    samples = {
        "images": sample_at(1.0, source("museum", successful=3)),
        "pages": replace(sample_at(1.0, source("museum", successful=9)), spider="pages"),
        "new": None,
    }
    text = generate_latest(registry(CrawlCollector(lambda: samples))).decode()
    assert max(Counter(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)).values()) == 1
    work = [
        (each.labels["spider"], each.labels["source"])
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == "crawl_queued_requests"
    ]
    assert work == [("images", "museum"), ("pages", "museum")]


@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_counter_falls_whichever_sources_have_labels(most: int) -> None:
    scraped, counts = Scraped(most), {"a": 7, "b": 0, "c": 0, "d": 0}
    before = scraped.look(0, 7, **counts)
    assert sum(before.values()) == 7
    for step in range(40):
        counts["abcd"[step % 4 if step < 20 else step % 2 + 2]] += step
        after = scraped.look(step + 1, sum(counts.values()), **counts)
        assert len(after) == most + 1
        assert all(after[name] >= value for name, value in before.items() if name in after)
        if most == len(counts):
            assert after == {**counts, OTHER: 0}
        before = after


def test_a_source_that_is_called_other_is_one_of_them() -> None:
    scraped = Scraped()
    assert scraped.look(1, 3, **{OTHER: 3}) == {OTHER: 3}
    assert scraped.look(2, 5, **{OTHER: 5}) == {OTHER: 5}


def test_without_a_reading_only_the_process_is_seen() -> None:
    text = generate_latest(Scraped().registry).decode()
    assert "process_cpu_seconds_total" in text
    assert "crawl_" not in text


def test_a_name_from_the_web_stays_one_label() -> None:
    scraped = Scraped()
    name = 'a"}\\museum{'
    assert scraped.look(1, 1, **{name: 1}) == {name: 1, OTHER: 0}


def test_of_an_old_reading_only_its_time_is_left() -> None:
    scraped = Scraped()
    scraped.look(1, 1, a=1)
    assert scraped.sample is not None
    scraped.sample = replace(scraped.sample, time="2026-01-01T00:00:00.000+00:00")
    text = generate_latest(scraped.registry).decode()
    ours = [line.partition("{")[0] for line in text.splitlines() if line.startswith("crawl_")]
    assert ours == ["crawl_reading_timestamp_seconds"]


def test_each_reader_of_the_events_tells_how_far_it_is_behind() -> None:
    one = replace(sample_at(1.0), unread={"archive": 12_000, 'a "b"': 0})
    text = generate_latest(registry(CrawlCollector(lambda: {"images": one}))).decode()
    assert {
        sample.labels["reader"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "crawl_reader_unread_events"
    } == {"archive": 12_000, 'a "b"': 0}
