"""What becomes of a failed attempt, and how long it waits."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject import config
from crawlproject.politeness.outcomes import Failure, Outcome, of_status
from crawlproject.politeness.retry import MOST_FREE_RETRIES, GiveUp, Retry, decide, delay

FORBIDDEN, UNAVAILABLE, TOO_MANY = of_status(403), of_status(500), of_status(429)


def settings(**more: Any) -> config.Config:
    return config.load({"CRAWL_RETRY_DELAY": 10, **more})


def failure(outcome: Outcome, retry_after: float | None = None) -> Failure:
    return Failure(outcome, "status", retry_after=retry_after)


@pytest.mark.parametrize(
    ("outcome", "budget", "retries", "free_retries", "expected"),
    [
        # never worth another attempt
        (FORBIDDEN, 5, 0, 0, None),
        (FORBIDDEN, 5, 1, 0, None),
        # at the cost of a retry: CRAWL_MAX_RETRIES times
        (UNAVAILABLE, 0, 0, 0, None),
        (UNAVAILABLE, 1, 0, 0, (1, 0)),
        (UNAVAILABLE, 1, 1, 0, None),
        (UNAVAILABLE, 3, 2, 0, (3, 0)),
        (UNAVAILABLE, 3, 3, 0, None),
        (UNAVAILABLE, 1, 0, 5, (1, 5)),  # the free retries have cost nothing
        # five times for nothing
        (TOO_MANY, 0, 0, 0, (0, 1)),
        (TOO_MANY, 0, 0, MOST_FREE_RETRIES - 1, (0, MOST_FREE_RETRIES)),
        (TOO_MANY, 0, 0, MOST_FREE_RETRIES, None),
        (TOO_MANY, 1, 0, MOST_FREE_RETRIES, (1, MOST_FREE_RETRIES)),
        (TOO_MANY, 1, 1, MOST_FREE_RETRIES, None),
        (TOO_MANY, 1, 1, 0, (1, 1)),
    ],
)
def test_the_budget_of_attempts(
    outcome: Outcome, budget: int, retries: int, free_retries: int, expected: tuple[int, int] | None
) -> None:
    verdict = decide(failure(outcome), retries, free_retries, settings(CRAWL_MAX_RETRIES=budget), 0.5)
    if expected is None:
        assert isinstance(verdict, GiveUp)
    else:
        assert isinstance(verdict, Retry)
        assert (verdict.retries, verdict.free_retries) == expected


def test_every_failure_ends_after_a_bounded_number_of_attempts() -> None:
    busy, retries, free_retries, attempts = failure(TOO_MANY), 0, 0, 1
    while isinstance(verdict := decide(busy, retries, free_retries, settings(CRAWL_MAX_RETRIES=2), 0.5), Retry):
        retries, free_retries, attempts = verdict.retries, verdict.free_retries, attempts + 1
    assert attempts == 1 + MOST_FREE_RETRIES + 2


@pytest.mark.parametrize(
    ("retries", "free_retries", "reason"),
    [(0, 0, "status"), (1, 0, "status (after 2 attempts)"), (1, 5, "status (after 7 attempts)")],
)
def test_the_reason_says_how_often_it_was_tried(retries: int, free_retries: int, reason: str) -> None:
    assert decide(failure(FORBIDDEN), retries, free_retries, settings(), 0.5) == GiveUp(reason)


@pytest.mark.parametrize(
    ("attempt", "least", "chance", "seconds"),
    [
        # it doubles, from half to all of its length
        (1, 0, 0.0, 5),
        (1, 0, 0.5, 7.5),
        (1, 0, 1.0, 10),
        (2, 0, 1.0, 20),
        (3, 0, 1.0, 40),
        (7, 0, 1.0, 640),
        # and is bounded
        (10, 0, 1.0, 3600),
        (10, 0, 0.0, 1800),
        (100, 0, 1.0, 3600),
        (100_000, 0, 1.0, 3600),
        # never sooner than the site wants, save for the bound
        (1, 3, 0.0, 5),
        (1, 7, 0.0, 7),
        (1, 120, 1.0, 120),
        (1, 99_999, 1.0, 3600),
    ],
)
def test_delay(attempt: int, least: float, chance: float, seconds: float) -> None:
    assert delay(attempt, least, settings(), chance) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("retries", "free_retries", "retry_after", "seconds"),
    [(0, 0, None, 10), (1, 0, None, 20), (1, 2, None, 80), (0, 0, 60.0, 60), (0, 0, 0.0, 10)],
)
def test_a_retry_waits_longer_with_each_attempt_and_at_least_as_long_as_retry_after(
    retries: int, free_retries: int, retry_after: float | None, seconds: float
) -> None:
    busy = failure(TOO_MANY, retry_after)
    verdict = decide(busy, retries, free_retries, settings(CRAWL_MAX_RETRIES=9), 1.0)
    assert isinstance(verdict, Retry)
    assert verdict.delay == pytest.approx(seconds)


def test_a_first_delay_above_the_longest_is_the_longest() -> None:
    assert delay(1, 0, settings(CRAWL_RETRY_DELAY=5000), 1.0) == 3600
