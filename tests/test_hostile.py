"""The hostile benchmark in small: a few cases of each kind, all of which hold (benchmarks/hostile)."""

from __future__ import annotations

import pytest

from benchmarks.hostile.__main__ import KINDS, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_what_strangers_send_holds(kind: str) -> None:
    tally = run(kind, most=3)
    assert tally.tried >= 3
    assert tally.broken == []
