"""The chaos benchmark in small (benchmarks/chaos.py): every fault once, over some hundred seeds."""

from __future__ import annotations

import pytest

from benchmarks.chaos import FAULTS, Plan, run

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)  # a minute, but for a busy machine; what hangs is found within minutes by the benchmark
def test_every_seed_ends_in_exactly_one_way_whatever_fails() -> None:
    plan = Plan(
        seeds=500,
        random=4,
        heartbeat_timeout=1.5,
        rates={"fast": 25.0, "modest": 8.0, "slow": 0.8},
        rounds=1,
        pause=(0.5, 1.5),
        deadline=600,
    )
    result = run(plan)
    assert result.faults.keys() == FAULTS.keys()
    assert result.broken == []  # that nothing more happens among it, which would count the rest as lost
    assert result.lost == []
    assert result.doubled == []
    assert result.seeds == sum(result.outcomes.values())
