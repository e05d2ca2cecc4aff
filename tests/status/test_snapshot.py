"""What follows from two samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from crawlproject.models import utc_now
from crawlproject.state.calls import LATENCY_BOUNDS, PARSE_BOUNDS, Overview, Pause
from crawlproject.status.snapshot import (
    CrawlSample,
    InFlight,
    Snapshot,
    eta,
    snapshot,
)
from crawlproject.status.source_status import SourceRow, said_of_minimum

BUCKETS = len(LATENCY_BOUNDS) + 1


def row(name: str, **more: Any) -> SourceRow:
    base: dict[str, Any] = {
        "source": name, "rate_limit": 5.0, "effective_rate": 5.0, "reason": "by size", "queued": 0, "waiting": 0,
        "delayed": 0, "in_flight": 0, "successful": 0, "failed": 0, "state": "closed", "eta_s": 0.0,
        "next_slot_s": 0.0, "status": None,
    }  # fmt: skip
    return SourceRow(**base | more)


def sample_at(now: float, *sources: SourceRow, **more: Any) -> CrawlSample:
    totals = dict(more.pop("totals", {}))
    for name, counts in (("fetch", more.pop("fetches", ())), ("parse", more.pop("parses", ()))):
        totals |= {f"{name}:{bucket}": count for bucket, count in enumerate(counts)}
    base: dict[str, Any] = {
        "now": now, "outstanding": 0, "seeds": 0, "overflow": 0,
        "dead": 0, "alive": 1, "pause": Pause("", ""), "known": len(sources), "due": 0,
        "excluded": 0, "halted": [], "halted_for_a_while": [], "totals": totals,
        "sources": [], "ready": 0, "redis_bytes": 0, "spilled": 0,
    }  # fmt: skip
    by_name = {one.source: one for one in sources}
    return CrawlSample(utc_now(), "images", Overview(**base | more), InFlight(0, 0, 0), by_name)


def source(
    name: str,
    *,
    dead: int = 0,
    counts: dict[str, int] | None = None,
    fetches: Sequence[int] = (),
    **more: Any,
) -> SourceRow:
    # unless a test says otherwise, what succeeded are images, and what failed has failed at the first attempt
    usual = {"thumbnails": more.get("successful", 0), "error_timeout": more.get("failed", 0)}
    counts = {name: count for name, count in (usual | (counts or {})).items() if count}
    status: Any = SimpleNamespace(counts=Counter(counts), dead=dead, statuses={"200": 3}, fetches=fetches)
    return row(name, status=status, **more)  # what is made of the rest of it is in the row


def between(before: CrawlSample, after: CrawlSample) -> Snapshot:
    made = snapshot(before, after)
    assert made is not None
    return made


def general(before: CrawlSample, after: CrawlSample) -> Mapping[str, Any]:
    return between(before, after).general


def test_rates_are_what_has_come_since_the_last_sample_a_second() -> None:
    before = sample_at(
        100.0,
        source(
            "museum",
            successful=10,
            failed=1,
            counts={"thumbnails": 9, "link_rot": 1, "error_timeout": 1, "answers": 4, "latency_us": 1_000_000},
        ),
        totals={"thumbnails": 9, "link_rot": 1, "failed": 1, "bytes": 1000, "admitted": 5, "error_dns": 1},
    )
    after = sample_at(
        104.0,
        source(
            "museum",
            successful=30,
            failed=3,
            counts={"thumbnails": 27, "link_rot": 3, "error_timeout": 4, "error_dns": 3, "error_robots": 5,
                    "answers": 8, "latency_us": 3_000_000},
        ),
        totals={"thumbnails": 27, "link_rot": 3, "failed": 3, "bytes": 9000, "admitted": 25, "error_dns": 3,
                "error_decode": 2, "error_robots": 4, "error_opt_out": 8, "error_refused": 12, "error_store": 9,
                "retried": 2},
        halted=["b"], halted_for_a_while=["a"],
    )  # fmt: skip
    made = between(before, after)
    assert made.interval_s == 4.0
    one = made.general
    assert (one["success_rps"], one["error_rps"], one["processing_rate"]) == (4.5, 1.0, 5.5)
    assert (one["link_rot_rps"], one["dead_rps"]) == (0.5, 0.5)
    assert (one["robots_rps"], one["opt_out_rps"], one["refused_rps"]) == (1.0, 2.0, 3.0)
    assert (one["num_resized"], one["resize_errors"], one["split_rate"], one["retry_rps"]) == (27, 2, 5.0, 0.5)
    assert (one["bytes"], one["bytes_per_s"]) == (9000, 2000.0)
    assert (one["circuit_breaker_tripped"], one["circuit_breaker_open"]) == (["b"], ["a"])
    others = {"robots": 4, "opt_out": 8, "refused": 12, "store": 9}
    assert one["errors"] == {"dns": 3, "decode": 2} | others
    assert one["errors_now"] == {"dns": 2, "decode": 2} | others
    museum = made.specific["museum"]
    assert (museum["successful"], museum["link_rot"], museum["error"], museum["failed"]) == (30, 3, 7, 3)
    assert (museum["success_rps"], museum["link_rot_rps"], museum["error_rps"]) == (4.5, 0.5, 1.5)
    assert museum["latency_mean_s"] == 0.5
    assert museum["errors"] == {"timeout": 4, "dns": 3, "robots": 5}
    assert museum["last_50_statuses"] == {"200": 3}


def test_what_became_of_links_and_how_long_pages_took_to_read_is_told() -> None:
    before = sample_at(1.0, totals={"links_admitted": 5, "links_known": 5}, parses=(9,) + (0,) * len(PARSE_BOUNDS))
    parses = [9] + [0] * len(PARSE_BOUNDS)
    parses[2], parses[-1] = 98, 2  # 1 to 2 ms; above all bounds
    links = {
        "links_admitted": 15,
        "links_known": 25,
        "links_over_budget": 4,
        "links_without_room": 6,
        "links_refused": 3,
        "links_excluded": 2,
    }
    more = {"overflow": 40, "seeds": 2, "ready": 6, "redis_bytes": 10**6, "spilled": 30}
    others = {"overflow_lost": 7, "not_html_pdf": 3, "not_html_other": 1}
    after = sample_at(5.0, totals=links | others, parses=tuple(parses), **more)
    one = general(before, after)
    assert one["parse_p50_s"] == pytest.approx(0.001 + 0.001 * 50 / 98, abs=1e-6)
    assert one["parse_p99_s"] == PARSE_BOUNDS[-1]
    assert {name: one[name] for name in links} == links
    assert one["not_html"] == {"pdf": 3, "other": 1}
    assert one["links_rps"] == (55 - 10) / 4
    assert (one["waiting"], one["spilled"], one["seeds_waiting"], one["overflow_lost"]) == (40, 30, 42, 7)
    assert (one["sources_due"], one["redis_bytes"]) == (6, 10**6)
    assert general(after, replace(after, overview=after.overview._replace(now=6.0)))["parse_p50_s"] is None


def test_how_long_whole_fetches_take_stands_beside_the_time_to_the_first_byte() -> None:
    before = sample_at(1.0, fetches=(0,) * 8 + (7,) + (0,) * (BUCKETS - 9))
    fetches = [0] * BUCKETS
    fetches[8] = 7 + 98  # 0.6 to 1 s
    fetches[15] = 2  # time-outs, 15 to 30 s
    museum = source("museum", fetches=fetches)
    made = between(before, sample_at(2.0, museum, source("idle"), fetches=tuple(fetches)))
    one = made.general
    assert one["latency_p50_s"] is None
    assert one["fetch_p50_s"] == pytest.approx(0.6 + 0.4 * 50 / 98, abs=1e-6)
    assert one["fetch_p95_s"] == pytest.approx(0.6 + 0.4 * 95 / 98, abs=1e-6)
    assert one["fetch_p99_s"] == pytest.approx(15 + 15 * 1 / 2)
    # a source's are of its last fetches, whatever the interval
    assert made.specific["museum"]["fetch_p50_s"] == pytest.approx(0.6 + 0.4 * 53.5 / 105, abs=1e-6)
    assert made.specific["museum"]["fetch_p99_s"] == pytest.approx(15 + 15 * 0.93 / 2, abs=1e-6)
    assert (made.specific["idle"]["fetch_p50_s"], made.specific["idle"]["fetch_p99_s"]) == (None, None)


def test_a_source_that_was_not_looked_at_before_has_no_rate_one_that_is_new_has() -> None:
    known = sample_at(1.0, source("a", successful=1))
    after = sample_at(2.0, source("a", successful=2), source("b", successful=7))
    made = between(known, after)
    assert made.specific["b"]["success_rps"] == 7.0
    part = replace(known, overview=known.overview._replace(known=5000))
    made = between(part, after)
    assert made.specific["b"]["success_rps"] is None
    assert made.specific["a"]["success_rps"] == 1.0


def test_the_whole_takes_as_long_as_its_slowest_source() -> None:
    busy = [source("a", queued=10, eta_s=2.0), source("b", queued=9, eta_s=45.0), source("c", eta_s=0.0)]
    assert eta(sample_at(1.0, *busy, outstanding=19)) == 45.0
    assert eta(sample_at(1.0, *busy, source("d", queued=1, eta_s=None), outstanding=20)) == 45.0
    assert eta(sample_at(1.0, *busy)) == 0.0
    assert eta(sample_at(1.0, source("d", queued=1, eta_s=None), outstanding=1)) is None
    assert eta(sample_at(1.0, *busy, outstanding=19, pause=Pause("no pulse", "no worker leads"))) is None
    assert eta(sample_at(1.0, *busy, outstanding=19, pause=Pause("paused", "full"))) is None


def test_seeds_in_the_list_count_as_if_they_were_of_the_sources_in_the_frontier() -> None:
    slow = source("slow", queued=10, waiting=20, eta_s=15.0, effective_rate=2.0)
    fast = source("fast", queued=60, in_flight=10, eta_s=7.0, effective_rate=10.0)
    frontier = {"outstanding": 80, "overflow": 20}
    assert eta(sample_at(1.0, slow, fast, **frontier)) == 15.0
    assert eta(sample_at(1.0, slow, fast, **frontier, seeds=1000)) == pytest.approx(15.0 + 300 / 2.0)
    paced = source("slow", queued=10, waiting=20, eta_s=2100.0, effective_rate=2.0, delay_s=70.0)
    assert eta(sample_at(1.0, paced, fast, **frontier, seeds=1000)) == pytest.approx(2100.0 + 300 * 70.0)
    assert eta(sample_at(1.0, slow, fast, seeds=1000)) is None  # nobody knows of which sources they are
    assert eta(sample_at(1.0, slow, fast, **frontier, seeds=9, pause=Pause("paused", "full"))) is None


@pytest.mark.parametrize(
    ("state", "effective", "trouble"),
    [("closed", 5.0, 0), ("closed", 4.9, 1), ("half_open", 5.0, 2), ("open", 5.0, 3), ("halted", 1.0, 3)],
)
def test_what_keeps_a_source_from_its_limit_is_trouble(state: str, effective: float, trouble: int) -> None:
    made = between(sample_at(0.0), sample_at(5.0, source("a", state=state, effective_rate=effective)))
    assert made.specific["a"]["trouble"] == trouble


@pytest.mark.parametrize(
    ("state", "keys"),
    [
        ({}, []),
        ({"alive": 0}, ["workers"]),
        ({"totals": {"thumbnails": 9, "error_dns": 1}}, []),
        ({"totals": {"thumbnails": 8, "error_dns": 1}}, ["error_rps"]),
        ({"halted": ["a"]}, ["circuit_breaker_tripped"]),
        ({"halted_for_a_while": ["a"]}, ["circuit_breaker_open"]),
        ({"halted": ["a"], "halted_for_a_while": ["a"]}, ["circuit_breaker_tripped"]),
        ({"pause": Pause("paused", "full")}, ["paused"]),
    ],
)
def test_what_needs_attention_is_named_by_its_key(state: dict[str, Any], keys: list[str]) -> None:
    assert general(sample_at(0.0), sample_at(5.0, **state))["trouble"] == keys


def test_work_that_takes_long_at_an_unknown_size_is_told_with_the_remedy() -> None:
    unknown: dict[str, Any] = {"rate_limit": 0.2, "effective_rate": 0.2, "reason": "minimum: its size is unknown"}
    slow = row("photos.example", queued=120, waiting=376, in_flight=4, eta_s=2500.0, **unknown)
    assert said_of_minimum([row("a", queued=900, eta_s=180.0), slow]) == (
        "the size of photos.example is unknown, so it gets 0.2 requests a second, and its 500 requests take "
        "0:41:40; if it is yours, or its owner agrees: scrapy rate photos.example 5"
    )
    two = [slow, row("b.example", queued=121, eta_s=605.0, **unknown)]
    assert "its 500 requests take 0:41:40 (1 more source like it); if" in said_of_minimum(two)
    paced = row("a.example", queued=72, delay_s=70.0, eta_s=5040.0, **unknown)
    assert said_of_minimum([paced]) == (
        "a.example gets a request every 70 s (CRAWL_PAGES_DELAY, for all sources), and its 72 requests take "
        "1:24:00; if it is yours, or its owner agrees: CRAWL_PAGES_DELAY=0 for all workers, and "
        "scrapy rate a.example 5"
    )
    for kept in (
        row("done.example", **unknown),
        row("short.example", queued=120, eta_s=600.0, **unknown),
        row("halted.example", queued=500, eta_s=None, **unknown),
        row("village", queued=500, eta_s=2500.0, **unknown | {"reason": "by size"}),
        row("asked.example", queued=500, eta_s=2500.0, **unknown | {"reason": "by override"}),
    ):
        assert said_of_minimum([kept]) == ""


def test_a_command_that_sets_rates_tells_of_small_sources_and_names_its_option() -> None:
    slow: dict[str, Any] = {"rate_limit": 0.2, "effective_rate": 0.2, "queued": 500, "eta_s": 2500.0}
    assert said_of_minimum([row("village", reason="by size", **slow)], "--rate") == (
        "village is small by the catalogue, so it gets 0.2 requests a second, and its 500 requests take 0:41:40; "
        "if it is yours, or its owner agrees: --rate village=5 at the start, or now: scrapy rate village 5"
    )
    assert said_of_minimum([row("big", reason="by size", **slow | {"rate_limit": 9.0})], "--rate") == ""
