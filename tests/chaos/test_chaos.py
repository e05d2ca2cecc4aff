"""The chaos benchmark in small (benchmarks/chaos.py): every fault over some hundred seeds."""

from __future__ import annotations

import pytest

from benchmarks.chaos import Account, Plan, run

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
    )
    result = run(plan)
    assert result.faults.keys() == {*plan.deck}
    is_whole(result)


@pytest.mark.timeout(900)
def test_every_seed_of_several_shards_ends_in_exactly_one_way_whatever_fails() -> None:
    plan = Plan(
        seeds=600,
        random=6,
        heartbeat_timeout=1.5,
        workers=2,
        rates={"fast": 20.0, "faster": 25.0, "modest": 8.0, "slow": 0.8},
        faults=("kill", "kill-redis", "hang-redis", "move-slot", "kill-reader"),
        rounds=2,
        pause=(0.5, 1.5),
        shards=8,
    )
    result = run(plan)
    assert result.faults == dict.fromkeys(plan.faults, 2)
    is_whole(result)


def is_whole(result: Account) -> None:
    assert result.broken == []  # that nothing more happens among it, which would count the rest as lost
    assert (result.lost, result.doubled) == ([], [])
    assert result.seeds == sum(result.outcomes.values())
