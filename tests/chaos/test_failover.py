"""The fail-over benchmark in small (benchmarks/failover.py): a master is killed, and a replica takes over."""

from __future__ import annotations

import pytest

from benchmarks.failover import TRIALS, run

pytestmark = pytest.mark.slow


@pytest.mark.judges
@pytest.mark.timeout(400)  # half a minute, but for a busy machine
@pytest.mark.parametrize(("name", "seconds"), [("failover", 6), ("cluster-lag", 16)])
def test_a_crawl_goes_on_with_the_replica_that_takes_over(name: str, seconds: float) -> None:
    trial = next(trial for trial in TRIALS if trial.name == name)
    # A rate exceeded, a worker gone, an event twice, a lost seed that stays lost; in shards any that is lost.
    assert run(trial, seconds, share=0.5).broken == []
