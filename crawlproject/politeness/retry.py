"""Whether a failed attempt is repeated, and when."""

from __future__ import annotations

from dataclasses import dataclass

from crawlproject.config import Config
from crawlproject.politeness.outcomes import Becomes, Failure

LONGEST_DELAY_S = 3600.0  # between two attempts, and that a Retry-After holds a source
MOST_DELIVERIES = (
    5  # of a request that is lost with its worker, or returned after an internal fault: then it is dead
)
MOST_FREE_RETRIES = 5  # of one request, after a 429 or a 503 with Retry-After


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds; the attempts counted so far go with the request."""

    delay: float
    retries: int
    free_retries: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Make it a dead letter."""

    reason: str


def decide(failure: Failure, retries: int, free_retries: int, config: Config, chance: float) -> Retry | GiveUp:
    """Return whether an attempt that ended in `failure` is repeated.

    `retries` and `free_retries` count the failed attempts before this one. Back-off is exponential from
    `CRAWL_RETRY_DELAY` with jitter: `chance`, from 0 to 1, spreads it from half to all of its length
    ("equal jitter", Brooker, "Exponential Backoff and Jitter", 2015). A source that sent a Retry-After is
    given at least that long.
    """
    becomes = failure.outcome.becomes
    if becomes is Becomes.FREE_RETRY and free_retries < MOST_FREE_RETRIES:
        free_retries += 1
    elif becomes in {Becomes.RETRY, Becomes.FREE_RETRY} and retries < config.max_retries:
        retries += 1
    else:
        tried = retries + free_retries
        return GiveUp(failure.reason + (f" (after {tried + 1} attempts)" if tried else ""))
    return Retry(delay(retries + free_retries, failure.retry_after or 0.0, config, chance), retries, free_retries)


def delay(attempt: int, least: float, config: Config, chance: float) -> float:
    """Return the seconds to wait after the `attempt`th failure: `least` or more, up to `LONGEST_DELAY_S`."""
    full = min(config.retry_delay * 2.0 ** min(attempt - 1, 30), LONGEST_DELAY_S)
    return min(max(full * (0.5 + 0.5 * chance), least), LONGEST_DELAY_S)
