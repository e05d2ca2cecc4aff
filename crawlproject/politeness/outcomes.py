"""The table of everything that an attempt to fetch a picture can come to, what follows from it, and when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Literal, NamedTuple, get_args

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost

from crawlproject.config import Config
from crawlproject.errors import (
    CrawlprojectError,
    MemoryShort,
    NoNameServer,
    NoRoute,
    Paused,
    RobotsDisallowed,
    RobotsOptOut,
    RobotsUnreachable,
    Stopped,
    TlsFailed,
)
from crawlproject.models import ImageFacts
from crawlproject.texts import printable

LONGEST_DELAY_S = 3600.0  # between two attempts, and that a Retry-After holds a source
MOST_DELIVERIES = (
    5  # of a request that is lost with its worker, or returned after an internal fault: then it is dead
)
MOST_FREE_RETRIES = 5  # of one request, after a 429 or a 503 with Retry-After

# The kinds under which errors are counted: few and fixed, so that each can be a counter of every source.
# docs/events.md says what each means.
Kind = Literal[
    "dns",
    "connect",
    "tls",
    "timeout",
    "http_2xx",
    "http_3xx",
    "http_4xx",
    "http_5xx",
    "http_other",
    "decode",
    "too_large",
    "robots",
    "opt_out",
    "refused",
    "store",
    "ours",
]
ERROR_KINDS: tuple[Kind, ...] = get_args(Kind)
# What links to pages lead to in place of HTML, by the declared type: few and fixed for the same reason.
NOT_HTML_TYPES = ("pdf", "image", "audio", "video", "text", "application", "other")
# Attempts that failed at the site, or on the way there; of the others none says that anything is wrong with it.
SITE_ERRORS = tuple(kind for kind in ERROR_KINDS if kind not in {"robots", "opt_out", "refused", "store", "ours"})


class Becomes(Enum):
    """What becomes of the request."""

    IMAGE = "an image event, or that of a mode (frontier/modes.py)"
    LINK_ROT = "a link rot event"
    DEAD_LETTER = "a dead letter, at once"
    RETRY = "tried again at the cost of a retry; a dead letter once these are spent"
    FREE_RETRY = "tried again, the first times at no cost (`decide`)"
    HANDED_BACK = "to the head of its queue, as if it had never been leased"
    POSTPONED = "back to its queue after a while, with no attempt counted"
    REDELIVERED = "back to its queue after a while, with a delivery counted; a dead letter at the last one"
    NOTHING = "nothing: it is done, counted, and has no event; a seed is a dead letter"


class Sample(Enum):
    """What the circuit of the source learns."""

    FINE = "a sample without error"
    ERROR = "a sample with an error"
    NONE = "nothing: the site was not reached, or the fault is not the site's"


class Outcome(NamedTuple):
    """One row of the table."""

    becomes: Becomes
    sample: Sample
    kind: Kind | None = None  # counted as an error of this kind
    noted: str | None = None  # stands among the source's last statuses where there is no HTTP status
    slows: bool = False  # slows the source down, and holds it for as long as a Retry-After says

    @property
    def is_refusal(self) -> bool:
        """Whether the site forbids the picture: nothing is wrong, and nothing to be done."""
        return self.becomes is Becomes.DEAD_LETTER and self.kind in {"robots", "opt_out"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Item of the spider or of a pipeline: the attempt did not yield an event.

    `outcome` says what follows from that; `reason` is a sentence for people.
    `status` is the HTTP status, None when there was no response. `retry_after` is how long the site wants to be
    left alone, in seconds, or when its robots.txt is fetched again; None if that is not known. `facts`
    are those of the header of a picture that cannot be decoded. `content_type` is what a response has that is no
    page.
    """

    outcome: Outcome
    reason: str
    status: int | None = None
    retry_after: float | None = None
    facts: ImageFacts | None = None
    content_type: str = ""


# What components find out by themselves
UNREADABLE = Outcome(Becomes.DEAD_LETTER, Sample.FINE, "decode")
NOT_HTML = Outcome(Becomes.NOTHING, Sample.FINE)
KEPT_BACK = Outcome(Becomes.DEAD_LETTER, Sample.FINE, "opt_out")  # by its headers, or what a page says of itself
STORAGE_UNAVAILABLE = Outcome(Becomes.POSTPONED, Sample.NONE, "store")
STOPPED = Outcome(Becomes.HANDED_BACK, Sample.NONE)
DROPPED = Outcome(Becomes.DEAD_LETTER, Sample.NONE)  # by a pipeline, on purpose
INTERNAL_FAULT = Outcome(Becomes.REDELIVERED, Sample.NONE, "ours")

_GONE = Outcome(Becomes.LINK_ROT, Sample.FINE)

# HTTP statuses: each by itself, else by its class; an invalid one is treated as 5xx (RFC 9110, section 15)
_503_WITH_RETRY_AFTER = Outcome(Becomes.FREE_RETRY, Sample.ERROR, "http_5xx", slows=True)
_BY_STATUS = {
    200: Outcome(Becomes.IMAGE, Sample.FINE),
    404: _GONE,
    410: _GONE,
    429: Outcome(Becomes.FREE_RETRY, Sample.ERROR, "http_4xx", slows=True),
    503: Outcome(Becomes.RETRY, Sample.ERROR, "http_5xx", slows=True),
}
_BY_CLASS = {
    2: Outcome(Becomes.DEAD_LETTER, Sample.FINE, "http_2xx"),
    3: Outcome(Becomes.DEAD_LETTER, Sample.FINE, "http_3xx"),
    4: Outcome(Becomes.DEAD_LETTER, Sample.ERROR, "http_4xx"),
    5: Outcome(Becomes.RETRY, Sample.ERROR, "http_5xx"),
}
_INVALID = Outcome(Becomes.RETRY, Sample.ERROR, "http_other")

# Exceptions, in place of a response: the class nearest to the exception's counts
_NETWORK = Outcome(Becomes.RETRY, Sample.ERROR, "connect", noted="network")
_BY_EXCEPTION: dict[type[BaseException], Outcome] = {
    CannotResolveHostError: Outcome(Becomes.RETRY, Sample.ERROR, "dns", noted="dns"),
    DownloadConnectionRefusedError: Outcome(Becomes.RETRY, Sample.ERROR, "connect", noted="refused"),
    TlsFailed: Outcome(Becomes.RETRY, Sample.ERROR, "tls", noted="tls"),
    DownloadTimeoutError: Outcome(Becomes.RETRY, Sample.ERROR, "timeout", noted="timeout"),
    **dict.fromkeys((DownloadFailedError, ResponseDataLossError), _NETWORK),
    **dict.fromkeys((ConnectError, ConnectionDone, ConnectionLost, OSError), _NETWORK),
    DownloadCancelledError: Outcome(Becomes.DEAD_LETTER, Sample.FINE, "too_large", noted="too_large"),
    RobotsDisallowed: Outcome(Becomes.DEAD_LETTER, Sample.NONE, "robots"),
    RobotsOptOut: Outcome(Becomes.DEAD_LETTER, Sample.NONE, "opt_out"),
    RobotsUnreachable: Outcome(Becomes.RETRY, Sample.NONE, "robots"),
    IgnoreRequest: Outcome(Becomes.DEAD_LETTER, Sample.NONE, "refused"),  # AddressRefused, too many redirects
    MemoryShort: INTERNAL_FAULT,
    **dict.fromkeys((NoNameServer, NoRoute, Paused, Stopped), STOPPED),
    BaseException: Outcome(Becomes.DEAD_LETTER, Sample.NONE, "ours"),  # not foreseen: a fault of this program
}


def of_status(status: int, retry_after: float | None = None, gone: Collection[int] = ()) -> Outcome:
    """Return the outcome of a response with `status`, whose Retry-After is `retry_after` seconds.

    `gone` are further statuses that stand for link rot at its source.
    """
    if status in gone:
        return _GONE
    if status == 503 and retry_after is not None:
        return _503_WITH_RETRY_AFTER
    return _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, _INVALID)


def not_html_type(content_type: str) -> str:
    """Return which of `NOT_HTML_TYPES` a content type is counted as."""
    essence = content_type.partition(";")[0].strip().lower()
    if essence in {"application/pdf", "application/x-pdf"}:
        return "pdf"
    kind, slash, _ = essence.partition("/")
    return kind if slash and kind in NOT_HTML_TYPES[1:] and "html" not in essence else "other"


def of_exception(error: BaseException) -> Outcome:
    """Return the outcome of a request that ended with `error` in place of a response."""
    return next(_BY_EXCEPTION[cls] for cls in type(error).__mro__ if cls in _BY_EXCEPTION)


# Whether an attempt is repeated, and when


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds; the attempts counted so far go with the request."""

    delay: float
    retries: int
    free_retries: int


def decide(failure: Failure, retries: int, free_retries: int, config: Config, chance: float) -> Retry | str:
    """Return how an attempt that ended in `failure` is repeated; why not, if it becomes a dead letter.

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
        return failure.reason + (f" (after {tried + 1} attempts)" if tried else "")
    return Retry(delay(retries + free_retries, failure.retry_after or 0.0, config, chance), retries, free_retries)


def delay(attempt: int, least: float, config: Config, chance: float) -> float:
    """Return the seconds to wait after the `attempt`th failure: `least` or more, up to `LONGEST_DELAY_S`."""
    full = min(config.retry_delay * 2.0 ** min(attempt - 1, 30), LONGEST_DELAY_S)
    return min(max(full * (0.5 + 0.5 * chance), least), LONGEST_DELAY_S)


# What a failed attempt says: why, for people, and how long the site wants to be left alone


def failure_of(error: BaseException, maxsize: int) -> Failure:
    """Return what a request without a response, or with one that is not kept, has failed of."""
    if isinstance(error, HttpError):
        status, wait = error.response.status, retry_after_of(error.response)
        return Failure(of_status(status, wait), f"status {status}", status, wait)
    outcome = of_exception(error)
    return Failure(
        outcome,
        _reason_of(error, outcome, maxsize),
        retry_after=error.retry_in if isinstance(error, RobotsUnreachable) else None,
    )


def _reason_of(error: BaseException, outcome: Outcome, maxsize: int) -> str:
    """Return what an exception means, in a sentence for people."""
    text = printable(str(error).strip().partition("\n")[0], 300) or type(error).__name__
    if outcome.sample is Sample.ERROR:
        return f"{outcome.noted}: {text}"
    match error:
        case IgnoreRequest() if isinstance(error, CrawlprojectError):
            return str(error)
        case DownloadCancelledError():
            return f"larger than DOWNLOAD_MAXSIZE ({maxsize} bytes)"
    return f"{type(error).__name__}: {text}"


def retry_after_of(response: Response) -> float | None:
    """Return the seconds for which a response asks to be left alone (Retry-After), None if it does not."""
    value = response.headers.get("Retry-After")
    return None if value is None else retry_after(value, _their_time(response))


def retry_after(value: bytes | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header gives (RFC 9110, section 10.2.3), None if it is invalid."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    then = _date(text)
    return None if then is None else max((then - now).total_seconds(), 0.0)


def _their_time(response: Response) -> datetime:
    """Return the time by the site's clock, to which its Retry-After refers; by this machine's if it sends none."""
    return _date((response.headers.get("Date") or b"").decode("latin-1")) or datetime.now(UTC)


def _date(text: str) -> datetime | None:
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return then if then.tzinfo is not None else then.replace(tzinfo=UTC)
