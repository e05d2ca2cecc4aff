"""What an attempt comes to: its outcome, its reason, and when the next one is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from scrapy import exceptions as scrapys
from scrapy.http import Response
from twisted.internet.error import ConnectError

from crawlproject import config, errors
from crawlproject.politeness import outcomes
from crawlproject.politeness.outcomes import MOST_FREE_RETRIES as MOST_FREE
from crawlproject.politeness.outcomes import (
    Becomes,
    Failure,
    Outcome,
    Retry,
    Sample,
    of_exception,
    of_status,
)

IMAGE, LINK_ROT, DEAD_LETTER = Becomes.IMAGE, Becomes.LINK_ROT, Becomes.DEAD_LETTER
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RETRY, FREE_RETRY = Becomes.RETRY, Becomes.FREE_RETRY
FINE, ERROR, NONE = Sample.FINE, Sample.ERROR, Sample.NONE


@pytest.mark.parametrize(
    ("status", "retry_after", "becomes", "sample", "kind", "slows"),
    [
        (99, None, RETRY, ERROR, "http_other", False),
        (200, None, IMAGE, FINE, None, False),
        (204, None, DEAD_LETTER, FINE, "http_2xx", False),
        (304, None, DEAD_LETTER, FINE, "http_3xx", False),
        (403, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (404, None, LINK_ROT, FINE, None, False),
        (429, None, FREE_RETRY, ERROR, "http_4xx", True),
        (429, 60, FREE_RETRY, ERROR, "http_4xx", True),
        (500, None, RETRY, ERROR, "http_5xx", False),
        (503, None, RETRY, ERROR, "http_5xx", True),
        (503, 0, FREE_RETRY, ERROR, "http_5xx", True),
        (504, 60, RETRY, ERROR, "http_5xx", False),
        (600, None, RETRY, ERROR, "http_other", False),
    ],
)
def test_statuses(
    status: int, retry_after: float | None, becomes: Becomes, sample: Sample, kind: str | None, slows: bool
) -> None:
    found = of_status(status, retry_after)
    assert (found.becomes, found.sample, found.kind, found.slows) == (becomes, sample, kind, slows)


@pytest.mark.parametrize(
    ("error", "becomes", "sample", "kind", "noted"),
    [
        # on the way to the site
        (scrapys.CannotResolveHostError("museum.org"), RETRY, ERROR, "dns", "dns"),
        (scrapys.DownloadConnectionRefusedError("refused"), RETRY, ERROR, "connect", "refused"),
        (errors.TlsFailed("expired"), RETRY, ERROR, "tls", "tls"),
        (scrapys.DownloadTimeoutError("took longer than 30 s"), RETRY, ERROR, "timeout", "timeout"),
        (scrapys.DownloadFailedError("reset"), RETRY, ERROR, "connect", "network"),
        (ConnectError(string="no route"), RETRY, ERROR, "connect", "network"),  # type: ignore[no-untyped-call]
        (ConnectionResetError(104, "reset by peer"), RETRY, ERROR, "connect", "network"),
        # a response that is not kept
        (scrapys.DownloadCancelledError("expected 2000 bytes"), DEAD_LETTER, FINE, "too_large", "too_large"),
        (errors.RobotsOptOut("noai"), DEAD_LETTER, NONE, "opt_out", None),  # nothing was requested
        # not requested
        (errors.RobotsDisallowed("line 2"), DEAD_LETTER, NONE, "robots", None),
        (errors.RobotsUnreachable("timeout", 60.0), RETRY, NONE, "robots", None),
        (errors.AddressRefused("10.0.0.1"), DEAD_LETTER, NONE, "refused", None),
        (scrapys.IgnoreRequest("max redirections reached"), DEAD_LETTER, NONE, "refused", None),
        # not the site's fault
        (errors.MemoryShort("too much at a time"), Becomes.REDELIVERED, NONE, "ours", None),
        (errors.NoNameServer("none answers"), Becomes.HANDED_BACK, NONE, None, None),
        (errors.NoRoute("none answers"), Becomes.HANDED_BACK, NONE, None, None),
        (errors.Stopped("broken off"), Becomes.HANDED_BACK, NONE, None, None),
        (scrapys.UnsupportedURLSchemeError("file"), DEAD_LETTER, NONE, "ours", None),
        (ValueError("a bug"), DEAD_LETTER, NONE, "ours", None),
        (asyncio.CancelledError(), DEAD_LETTER, NONE, "ours", None),
    ],
)
def test_exceptions(
    error: BaseException, becomes: Becomes, sample: Sample, kind: str | None, noted: str | None
) -> None:
    assert of_exception(error) == Outcome(becomes, sample, kind, noted, slows=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "reason", "retry_after"),
    [
        (scrapys.DownloadTimeoutError("took longer\nthan 30 s"), "timeout: took longer", None),
        (scrapys.DownloadFailedError(), "network: DownloadFailedError", None),
        (ConnectionResetError(104, "reset by peer"), "network: [Errno 104] reset by peer", None),
        (scrapys.DownloadCancelledError("2000"), "larger than DOWNLOAD_MAXSIZE (1000 bytes)", None),
        (errors.RobotsUnreachable("robots unreachable: dns", 77.0), "robots unreachable: dns", 77.0),
        (ValueError("x" * 1000), "ValueError: " + "x" * 300, None),
        (KeyError("a\x1bbug"), "KeyError: 'a\\x1bbug'", None),
        (asyncio.CancelledError(), "CancelledError: CancelledError", None),
    ],
)
def test_what_a_request_without_a_response_has_failed_of_is_one_short_line(
    error: BaseException, reason: str, retry_after: float | None
) -> None:
    assert outcomes.failure_of(error, 1000) == Failure(of_exception(error), reason, retry_after=retry_after)


# Retries


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
        # at the cost of a retry: CRAWL_MAX_RETRIES times
        (UNAVAILABLE, 0, 0, 0, None),
        (UNAVAILABLE, 1, 1, 0, None),
        (UNAVAILABLE, 1, 0, 5, (1, 5)),  # the free retries have cost nothing
        # five times for nothing
        (TOO_MANY, 0, 0, MOST_FREE - 1, (0, MOST_FREE)),
        (TOO_MANY, 0, 0, MOST_FREE, None),
        (TOO_MANY, 1, 0, MOST_FREE, (1, MOST_FREE)),
        (TOO_MANY, 1, 1, MOST_FREE, None),
    ],
)
def test_the_budget_of_attempts(
    outcome: Outcome, budget: int, retries: int, free_retries: int, expected: tuple[int, int] | None
) -> None:
    verdict = outcomes.decide(failure(outcome), retries, free_retries, settings(CRAWL_MAX_RETRIES=budget), 0.5)
    if expected is None:
        attempts = 1 + retries + free_retries
        assert verdict == ("status" if attempts == 1 else f"status (after {attempts} attempts)")
    else:
        assert isinstance(verdict, Retry)
        assert (verdict.retries, verdict.free_retries) == expected


@pytest.mark.parametrize(
    ("retries", "free_retries", "retry_after", "chance", "seconds"),
    [
        # it doubles with each attempt, from half to all of its length, and is bounded
        (0, 0, None, 0.0, 5),
        (0, 0, None, 1.0, 10),
        (1, 0, None, 1.0, 20),
        (1, 2, None, 1.0, 80),
        (8, 4, None, 1.0, 3600),
        # never sooner than the site wants, save for the bound
        (0, 0, 0.0, 1.0, 10),
        (0, 0, 7.0, 0.0, 7),
        (0, 0, 120.0, 1.0, 120),
        (0, 0, 99_999.0, 1.0, 3600),
    ],
)
def test_a_retry_waits_longer_with_each_attempt_and_at_least_as_long_as_retry_after(
    retries: int, free_retries: int, retry_after: float | None, chance: float, seconds: float
) -> None:
    busy = failure(TOO_MANY, retry_after)
    verdict = outcomes.decide(busy, retries, free_retries, settings(CRAWL_MAX_RETRIES=9), chance)
    assert isinstance(verdict, Retry)
    assert verdict.delay == pytest.approx(seconds)


# Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"0", 0),
        (b"120", 120),
        (b"1.5", None),
        (b"\xb2", None),
        (b"soon", None),
        (b"Fri, 02 Jan 2026 03:05:05 GMT", 60),
        (b"Fri, 02 Jan 2026 03:04:05 GMT", 0),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (b"Fri, 32 Jan 2026 03:05:05 GMT", None),
        (b"Fri, 02 Jan 2026 03:05:05 +99999999999999999999", None),
        (b"\xff\xfe\x00", None),
        (b"," * 10_000, None),
    ],
)
def test_retry_after(value: bytes | None, seconds: float | None) -> None:
    assert outcomes.retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("date", "asked"),
    [
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 90.0),  # by the site's clock, however wrong one of us is
        (b"nonsense", 0.0),
    ],
)
def test_a_date_to_come_back_at_is_by_the_clock_of_the_site(date: bytes, asked: float) -> None:
    headers = {b"Date": date, b"Retry-After": b"Wed, 21 Oct 2015 07:29:30 GMT"}
    assert outcomes.retry_after_of(Response("http://museum.example/a.jpg", status=503, headers=headers)) == asked


@pytest.mark.parametrize(
    ("content_type", "counted_as"),
    [
        ("application/PDF ; version=1.7", "pdf"),
        ("image/svg+xml", "image"),
        ("application/rss+xml", "application"),
        ("text/plain; charset=utf-8", "text"),
        ("text/html", "other"),  # its bytes are none
        *((odd, "other") for odd in ("", "pdf", "other/x", "font/woff2", "text", "\x00/" * 99)),
    ],
)
def test_what_is_no_html_is_counted_by_its_type(content_type: str, counted_as: str) -> None:
    assert outcomes.not_html_type(content_type) == counted_as
