"""What follows from each status and each exception, value by value."""

from __future__ import annotations

import asyncio

import pytest
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotSupported,
    ResponseDataLossError,
    UnsupportedURLSchemeError,
)
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost, DNSLookupError, TCPTimedOutError

from crawlproject.errors import (
    AddressRefused,
    MemoryShort,
    NoNameServer,
    NoRoute,
    OptedOut,
    RobotsDisallowed,
    RobotsOptOut,
    RobotsUnreachable,
    Stopped,
    TlsFailed,
)
from crawlproject.politeness.outcomes import Becomes, Outcome, Sample, of_exception, of_status

IMAGE, LINK_ROT, DEAD_LETTER = Becomes.IMAGE, Becomes.LINK_ROT, Becomes.DEAD_LETTER
RETRY, FREE_RETRY = Becomes.RETRY, Becomes.FREE_RETRY
FINE, ERROR, ANSWER, NONE = Sample.FINE, Sample.ERROR, Sample.ANSWER, Sample.NONE


@pytest.mark.parametrize(
    ("status", "retry_after", "becomes", "sample", "kind", "slows"),
    [
        (99, None, RETRY, ERROR, "http_other", False),
        (200, None, IMAGE, FINE, None, False),
        (200, 60, IMAGE, FINE, None, False),
        (201, None, DEAD_LETTER, FINE, "http_2xx", False),
        (204, None, DEAD_LETTER, FINE, "http_2xx", False),
        (206, None, DEAD_LETTER, FINE, "http_2xx", False),
        (300, None, DEAD_LETTER, FINE, "http_3xx", False),
        (301, None, DEAD_LETTER, FINE, "http_3xx", False),
        (302, None, DEAD_LETTER, FINE, "http_3xx", False),
        (304, None, DEAD_LETTER, FINE, "http_3xx", False),
        (399, None, DEAD_LETTER, FINE, "http_3xx", False),
        (400, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (401, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (403, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (403, 60, DEAD_LETTER, ERROR, "http_4xx", False),
        (404, None, LINK_ROT, FINE, None, False),
        (404, 60, LINK_ROT, FINE, None, False),
        (406, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (408, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (410, None, LINK_ROT, FINE, None, False),
        (418, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (429, None, FREE_RETRY, ERROR, "http_4xx", True),
        (429, 60, FREE_RETRY, ERROR, "http_4xx", True),
        (451, None, DEAD_LETTER, ERROR, "http_4xx", False),
        (500, None, RETRY, ERROR, "http_5xx", False),
        (500, 60, RETRY, ERROR, "http_5xx", False),
        (502, None, RETRY, ERROR, "http_5xx", False),
        (503, None, RETRY, ERROR, "http_5xx", True),
        (503, 0, FREE_RETRY, ERROR, "http_5xx", True),
        (503, 60, FREE_RETRY, ERROR, "http_5xx", True),
        (504, 60, RETRY, ERROR, "http_5xx", False),
        (599, None, RETRY, ERROR, "http_5xx", False),
        (600, None, RETRY, ERROR, "http_other", False),
        (999, None, RETRY, ERROR, "http_other", False),
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
        (CannotResolveHostError("museum.org"), RETRY, ERROR, "dns", "dns"),
        (DownloadConnectionRefusedError("refused"), RETRY, ERROR, "connect", "refused"),
        (TlsFailed("expired"), RETRY, ERROR, "tls", "tls"),
        (DownloadTimeoutError("took longer than 30 s"), RETRY, ERROR, "timeout", "timeout"),
        (DownloadFailedError("reset"), RETRY, ERROR, "connect", "network"),
        (ResponseDataLossError("half of it"), RETRY, ERROR, "connect", "network"),
        (ConnectError(string="no route"), RETRY, ERROR, "connect", "network"),  # type: ignore[no-untyped-call]
        (TCPTimedOutError(), RETRY, ERROR, "connect", "network"),  # type: ignore[no-untyped-call]
        (ConnectionDone(), RETRY, ERROR, "connect", "network"),
        (ConnectionLost(), RETRY, ERROR, "connect", "network"),
        (DNSLookupError("museum.org"), RETRY, ERROR, "connect", "network"),
        (ConnectionResetError(104, "reset by peer"), RETRY, ERROR, "connect", "network"),
        (TimeoutError("timed out"), RETRY, ERROR, "connect", "network"),
        (OSError(113, "no route to host"), RETRY, ERROR, "connect", "network"),
        # a response that is not kept
        (DownloadCancelledError("expected 2000 bytes"), DEAD_LETTER, FINE, "too_large", "too_large"),
        (OptedOut("noai"), DEAD_LETTER, ANSWER, "opt_out", None),
        (RobotsOptOut("noai"), DEAD_LETTER, NONE, "opt_out", None),  # nothing was requested
        # not requested
        (RobotsDisallowed("line 2"), DEAD_LETTER, NONE, "robots", None),
        (RobotsUnreachable("timeout", 60.0), RETRY, NONE, "robots", None),
        (AddressRefused("10.0.0.1"), DEAD_LETTER, NONE, "refused", None),
        (IgnoreRequest("max redirections reached"), DEAD_LETTER, NONE, "refused", None),
        # not the site's fault
        (MemoryShort("too much at a time"), Becomes.REDELIVERED, NONE, "ours", None),
        (NoNameServer("none answers"), Becomes.HANDED_BACK, NONE, None, None),
        (NoRoute("none answers"), Becomes.HANDED_BACK, NONE, None, None),
        (Stopped("broken off"), Becomes.HANDED_BACK, NONE, None, None),
        (UnsupportedURLSchemeError("file"), DEAD_LETTER, NONE, "ours", None),
        (NotSupported("file"), DEAD_LETTER, NONE, "ours", None),
        (ValueError("a bug"), DEAD_LETTER, NONE, "ours", None),
        (asyncio.CancelledError(), DEAD_LETTER, NONE, "ours", None),
    ],
)
def test_exceptions(
    error: BaseException, becomes: Becomes, sample: Sample, kind: str | None, noted: str | None
) -> None:
    assert of_exception(error) == Outcome(becomes, sample, kind, noted, slows=False)  # type: ignore[arg-type]
