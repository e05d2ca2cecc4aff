"""What becomes of a failed attempt, and how long it waits."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject import config
from crawlproject.models import Failure
from crawlproject.politeness.retry import MOST_FREE_RETRIES, GiveUp, Retry, decide, delay

GONE: dict[str, Any] = {}
PASSING: dict[str, Any] = {"retryable": True}
TOO_MANY: dict[str, Any] = {"status": 429, "retryable": True, "throttled": True}


def settings(**more: Any) -> config.Config:
    return config.load({"CRAWL_RETRY_DELAY": 10, "CRAWL_RETRY_DELAY_MAX": 1000, **more})


def failure(**more: Any) -> Failure:
    return Failure("id", "http://a/", "museum", kind="http", reason="status", **more)


@pytest.mark.parametrize(
    ("what", "budget", "retries", "free_retries", "expected"),
    [
        # never worth another attempt
        (GONE, 5, 0, 0, None),
        (GONE, 5, 1, 0, None),
        # passing trouble: CRAWL_MAX_RETRIES times
        (PASSING, 0, 0, 0, None),
        (PASSING, 1, 0, 0, (1, 0)),
        (PASSING, 1, 1, 0, None),
        (PASSING, 3, 2, 0, (3, 0)),
        (PASSING, 3, 3, 0, None),
        (PASSING, 1, 0, 5, (1, 5)),  # what was free_retries has cost nothing
        # the source asks for patience: five times for nothing
        (TOO_MANY, 0, 0, 0, (0, 1)),
        (TOO_MANY, 0, 0, MOST_FREE_RETRIES - 1, (0, MOST_FREE_RETRIES)),
        (TOO_MANY, 0, 0, MOST_FREE_RETRIES, None),
        (TOO_MANY, 1, 0, MOST_FREE_RETRIES, (1, MOST_FREE_RETRIES)),
        (TOO_MANY, 1, 1, MOST_FREE_RETRIES, None),
        (TOO_MANY, 1, 1, 0, (1, 1)),
    ],
)
def test_the_budget_of_attempts(
    what: dict[str, Any], budget: int, retries: int, free_retries: int, expected: tuple[int, int] | None
) -> None:
    outcome = decide(failure(**what), retries, free_retries, settings(CRAWL_MAX_RETRIES=budget), 0.5)
    if expected is None:
        assert isinstance(outcome, GiveUp)
    else:
        assert isinstance(outcome, Retry)
        assert (outcome.retries, outcome.free_retries) == expected


def test_every_failure_ends_after_a_bounded_number_of_attempts() -> None:
    one, retries, free_retries, attempts = failure(**TOO_MANY), 0, 0, 1
    while isinstance(outcome := decide(one, retries, free_retries, settings(CRAWL_MAX_RETRIES=2), 0.5), Retry):
        retries, free_retries, attempts = outcome.retries, outcome.free_retries, attempts + 1
    assert attempts == 1 + MOST_FREE_RETRIES + 2


@pytest.mark.parametrize(
    ("retries", "free_retries", "reason"),
    [(0, 0, "status"), (1, 0, "status (after 2 attempts)"), (1, 5, "status (after 7 attempts)")],
)
def test_the_reason_says_how_often_it_was_tried(retries: int, free_retries: int, reason: str) -> None:
    assert decide(failure(), retries, free_retries, settings(), 0.5) == GiveUp(reason)


@pytest.mark.parametrize(
    ("attempt", "asked", "chance", "seconds"),
    [
        # it doubles, from half to all of its length
        (1, 0, 0.0, 5),
        (1, 0, 0.5, 7.5),
        (1, 0, 1.0, 10),
        (2, 0, 1.0, 20),
        (3, 0, 1.0, 40),
        (7, 0, 1.0, 640),
        # and is bounded
        (8, 0, 1.0, 1000),
        (8, 0, 0.0, 500),
        (100, 0, 1.0, 1000),
        (100_000, 0, 1.0, 1000),
        # never sooner than asked for, save for the bound
        (1, 3, 0.0, 5),
        (1, 7, 0.0, 7),
        (1, 120, 1.0, 120),
        (1, 99_999, 1.0, 1000),
    ],
)
def test_delay(attempt: int, asked: float, chance: float, seconds: float) -> None:
    assert delay(attempt, asked, settings(), chance) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("retries", "free_retries", "retry_after", "seconds"),
    [(0, 0, None, 10), (1, 0, None, 20), (1, 2, None, 80), (0, 0, 60.0, 60), (0, 0, 0.0, 10)],
)
def test_a_retry_waits_longer_with_each_attempt_and_as_long_as_asked(
    retries: int, free_retries: int, retry_after: float | None, seconds: float
) -> None:
    one = failure(retry_after=retry_after, **TOO_MANY)
    outcome = decide(one, retries, free_retries, settings(CRAWL_MAX_RETRIES=9), 1.0)
    assert isinstance(outcome, Retry)
    assert outcome.delay == pytest.approx(seconds)


def test_a_first_delay_above_the_longest_is_the_longest() -> None:
    assert delay(1, 0, settings(CRAWL_RETRY_DELAY=5000), 1.0) == 1000
