"""The fail-over benchmark in small (benchmarks/failover.py): a master is killed, and a replica takes over."""

from __future__ import annotations

import pytest

from benchmarks.failover import TRIALS, run

pytestmark = pytest.mark.slow


@pytest.mark.judges
@pytest.mark.timeout(400)  # half a minute, but for a busy machine
def test_a_crawl_goes_on_with_the_replica_that_takes_over() -> None:
    trial = next(trial for trial in TRIALS if trial.name == "failover")
    result = run(trial, seconds=6, sources={"fast": 50.0, "modest": 5.0})
    assert result.broken == []  # a rate exceeded, a worker gone, an event twice, a lost seed that stays lost
