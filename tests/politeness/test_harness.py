"""The politeness harness in small: the judge itself, and whole crawls of a few seconds (benchmarks/politeness.py).

Judged is what must never happen. How much of its rate a source gets is judged by `make bench`.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.arrivals import Report
from benchmarks.politeness import Result, disagreements, judge, run, silent_too_long, worst_of_clock
from benchmarks.politeness_scenarios import (
    LAPSE_SOON,
    Outage,
    Scenario,
    Source,
    fed_and_resumed,
    fed_while_halted,
    hanging_hosts,
    hanging_sources,
    killed_leader,
    lowered,
    redirects,
    restarted_redis,
    robots_to_one_host,
    slow_tls,
    slow_tls_stopped,
)

SOURCES = (Source("fast", 60), Source("modest", 5))


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("two-workers-skewed-clocks", SOURCES, seconds=5, skew_hours=(5, -7)),
        Scenario("killed-leader", SOURCES, seconds=10, disturb=killed_leader, settings=LAPSE_SOON, losses=True),
        Scenario("restarted-redis", SOURCES, seconds=5, disturb=restarted_redis, losses=True),
        lowered(4),
        redirects(4),
        slow_tls(5),
        slow_tls_stopped(4),
        hanging_sources(30, 4, rate=30),
        hanging_hosts(30, 4, rate=30),
        robots_to_one_host(4, elsewhere=5, apart=5, ordinary=3, rate=20, least=4),
        fed_while_halted(3, 600, 100),
        fed_and_resumed(4, 60),
    ],
    ids=lambda scenario: scenario.name,
)
@pytest.mark.judges
@pytest.mark.slow
def test_no_source_ever_gets_more_than_its_rate_and_every_seed_ends_once(scenario: Scenario) -> None:
    assert run(scenario).violations() == []


def evenly(rate: float, seconds: float, begin: float = 0.0) -> list[float]:
    return [begin + number / rate for number in range(round(rate * seconds) + 1)]


def test_a_burst_is_found_wherever_it_begins() -> None:
    times = sorted([*evenly(10, 5), 2.55, 2.551])
    figures = judge("museum", 10, times)
    assert (figures.worst, figures.seconds_over) == (12, 0)
    times = sorted([*times, 2.552])
    figures = judge("museum", 10, times)
    assert figures.worst == 13
    assert figures.seconds_over == 11  # from 1.6 to 2.5, and that from 2.55 itself
    assert "13 requests in a second" in Result("x", [figures], [], 0.0).violations()[0]


def test_what_sites_noted_late_counts_from_when_it_may_have_come() -> None:
    lapse = (2.0, 2.6)
    times = [lapse[1] + 0.001 if lapse[0] < moment < lapse[1] else moment for moment in evenly(10, 5)]
    assert judge("museum", 10, times).worst == 16
    assert judge("museum", 10, times, lapses=[lapse]).worst == 10
    times = sorted([*times, *[lapse[1] + 0.002] * 5])
    figures = judge("museum", 10, times, lapses=[(0.5, 0.6), lapse, (4.0, 4.1)])
    assert (figures.worst, figures.seconds_over) == (15, 6)  # those that begin up to half a second before it


def test_what_sites_noted_in_a_second_lapse_may_have_come_in_the_first() -> None:
    times = [2.61 if 2.0 < moment < 2.6 else moment for moment in evenly(10, 5)]
    assert judge("museum", 10, times, lapses=[(2.0, 2.6)]).worst == 10
    assert judge("museum", 10, times, lapses=[(2.59, 2.65)]).worst == 15
    assert judge("museum", 10, times, lapses=[(2.0, 2.59), (2.595, 2.65)]).worst == 10
    assert judge("museum", 10, times, lapses=[(2.0, 2.5), (2.595, 2.65)]).worst == 15


def test_the_mean_covers_the_time_with_work_and_no_outages() -> None:
    times = evenly(10, 3, begin=100) + evenly(10, 4, begin=108)
    assert judge("museum", 10, times).use == pytest.approx(71 / 120)
    outage = Outage(103.05, 107, patience=1)
    assert judge("museum", 10, times, [outage]).use == pytest.approx(1)
    slow = judge("museum", 11, times, [outage])
    result = Result("x", [slow], [], 0.0)
    assert result.shortfalls() == ["museum: the mean is 90.9% of the rate"]
    assert result.violations() == []
    fast = judge("museum", 9, times, [outage])
    assert Result("x", [fast], [], 0.0).violations()[-1] == "museum: the mean is 111.1% of the rate"


def test_a_source_that_gets_no_request_soon_after_an_outage_is_a_shortfall() -> None:
    museum = Source("museum", 10)
    outages = [Outage(4, 6, patience=1)]
    assert list(silent_too_long(museum, evenly(10, 3, begin=7.05), outages)) == []
    late = list(silent_too_long(museum, evenly(10, 3, begin=7.5), outages))
    assert late == ["museum: no request for 1.5 s after the outage"]
    result = Result("x", [], [], 0.0, resumed_late=late)
    assert (result.shortfalls(), result.violations()) == (late, [])


def test_the_bound_on_a_second_holds_during_an_outage_too() -> None:
    times = sorted([*evenly(10, 9), *evenly(10, 1, begin=4.05)])
    figures = judge("museum", 10, times, [Outage(4, 6, patience=1)])
    assert figures.use == pytest.approx(1)
    assert figures.worst > 12


def told(requests: int, received: int, peak: int, **results: int) -> dict[str, Any]:
    totals = {"requests": requests, "bytes": received, "results": {k[1:]: n for k, n in results.items()}}
    return {"totals": {**totals, "peak": {"requests": peak}}}


def test_a_report_that_does_not_agree_with_its_site_is_a_violation() -> None:
    times = [
        *evenly(10, 2, begin=100.35),
        100.999,
    ]  # 8, 10 and 4 in the seconds of the clock, one of them at its turn
    site = Report(
        arrivals={"museum": sorted(times)},
        late=0.0,
        lapses=[],
        pictures={},
        statuses={"museum": {"200": 20, "404": 2}},
        bytes={"museum": 5000},
        epoch=0.0,
        connections=1,
        resumed=0,
        agents={},
    )
    assert disagreements("museum", told(22, 5000, 10, _200=20, _404=2), site) == []
    assert disagreements("museum", told(22, 5000, 9, _200=20, _404=2), site) == [
        "museum: busiest second 9 by the report, 10 to 10 by the site"
    ]
    wrong = disagreements("museum", told(21, 4999, 10, _200=21), site)
    words = ("21 requests by", "4999 bytes by", "{'200': 21} results by")
    assert len(wrong) == 3
    assert all(word in one for word, one in zip(words, wrong, strict=True))
    assert disagreements("museum", told(21, 4999, 9, _200=21), site, losses=True) == []
    assert disagreements("museum", told(23, 5000, 10, _200=23), site, losses=True) == [
        "museum: 23 requests by the report, 22 by the site"
    ]
    nothing = told(0, 0, 0) | {"totals": {"requests": 0, "bytes": 0, "results": {}, "peak": None}}
    assert len(disagreements("museum", nothing, site)) == 3
    assert disagreements("nobody", nothing, site) == []


def test_the_worst_second_of_the_clock_is_told_with_what_came_at_its_turn() -> None:
    times = [0.9, 0.99, 1.01, 1.5, 1.99, 2.005]
    assert worst_of_clock(times) == 3
    assert worst_of_clock(times, 0.02) == 4
    assert worst_of_clock(times, -0.02) == 2
