"""The politeness harness in small: whole crawls of a few seconds (benchmarks/politeness.py).

Judged is what must never happen. How much of its rate a source gets is judged by `make bench`.
"""

from __future__ import annotations

import pytest

from benchmarks.politeness import run
from benchmarks.politeness_scenarios import (
    LAPSE_SOON,
    Scenario,
    Source,
    killed_leader,
    redirects,
    restarted_redis,
    slow_tls,
    slow_tls_stopped,
)

FAST, MODEST = Source("fast", 60), Source("modest", 5)
FEW = (Source("fast", 30), MODEST)  # what is lost with a worker comes back one by one


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("killed-leader", FEW, seconds=10, disturb=killed_leader, settings=LAPSE_SOON, losses=True),
        Scenario("restarted-redis", (FAST, MODEST), seconds=5, disturb=restarted_redis, losses=True),
        redirects(4),
        slow_tls(5),
        slow_tls_stopped(4),
    ],
    ids=lambda scenario: scenario.name,
)
@pytest.mark.judges
@pytest.mark.slow
def test_no_source_ever_gets_more_than_its_rate_and_every_seed_ends_once(scenario: Scenario) -> None:
    assert run(scenario).violations() == []
