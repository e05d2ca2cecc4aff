"""The chaos benchmark of pages in small (benchmarks/page_chaos.py): every fault once, over a few hundred pages."""

from __future__ import annotations

import pytest

from benchmarks.page_chaos import plan_of, run

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)  # a minute, but for a busy machine; what hangs is found within minutes by the benchmark
def test_every_page_ends_in_exactly_one_way_whatever_fails() -> None:
    plan = plan_of(
        60,
        random=4,
        pages=4,
        rounds=1,
        pause=(0.5, 1.5),
        heartbeat_timeout=1.5,
        workers=2,
    )
    result, _ = run(plan, pages=4)
    assert result.faults.keys() == {*plan.deck}
    assert result.broken == []
    assert result.lost == []
    assert result.doubled == []
    assert sum(result.outcomes.values()) >= result.seeds
