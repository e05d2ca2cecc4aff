"""The chaos benchmark of pages in small (benchmarks/page_chaos.py): every fault over sixty domains."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import page_chaos

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_every_page_ends_in_exactly_one_way_whatever_fails() -> None:
    haste: dict[str, Any] = {"rounds": 1, "pause": (0.5, 1.5), "heartbeat_timeout": 1.5, "workers": 2}
    plan = page_chaos.plan_of(60, random=4, pages=4, **haste)
    result, _ = page_chaos.run(plan, pages=4)
    assert result.faults.keys() == {*plan.deck}
    assert (result.broken, result.lost, result.doubled) == ([], [], [])
    assert sum(result.outcomes.values()) >= result.seeds
