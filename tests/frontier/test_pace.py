"""How many leases a worker takes at a time."""

from __future__ import annotations

from crawlproject.frontier.pace import MOST_A_CALL, Pace


def after(pace: Pace, in_time: int, missed: int) -> int:
    """Return how many leases may be taken after a call of which so many were in time, and so many late."""
    for _ in range(in_time):
        pace.keep_up()
    for _ in range(missed):
        pace.miss()
    return pace.next()


def test_a_worker_takes_half_as_many_while_too_many_are_late() -> None:
    pace = Pace()
    assert pace.next() == MOST_A_CALL
    assert after(pace, in_time=40, missed=20) == MOST_A_CALL // 2
    assert after(pace, in_time=20, missed=10) == MOST_A_CALL // 4
    for _ in range(9):
        least = after(pace, in_time=0, missed=30)
    assert 1 <= least < 8
    assert pace.next() == least  # nothing was learnt since


def test_a_few_late_ones_are_no_reason_to_take_fewer() -> None:
    assert after(Pace(), in_time=40, missed=5) == MOST_A_CALL


def test_a_worker_that_keeps_up_takes_more_again_within_seconds() -> None:
    pace = Pace()
    for _ in range(9):
        taken = after(pace, in_time=0, missed=9)
    calls = 0
    while taken < MOST_A_CALL:
        before, taken = taken, after(pace, in_time=taken, missed=0)
        assert before < taken <= before + before // 4 + 1
        calls += 1
    assert calls < 30
    assert after(pace, in_time=60, missed=0) == MOST_A_CALL
