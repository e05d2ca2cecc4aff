"""The table of everything that an attempt to fetch a picture can come to, and of what follows from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
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
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost

from crawlproject.errors import (
    MemoryShort,
    NoNameServer,
    NoRoute,
    OptedOut,
    Paused,
    RobotsDisallowed,
    RobotsOptOut,
    RobotsUnreachable,
    Stopped,
    TlsFailed,
)
from crawlproject.models import ImageFacts

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
# Attempts that failed at the site, or on the way there; of the others none says that anything is wrong with it.
SITE_ERRORS = tuple(kind for kind in ERROR_KINDS if kind not in {"robots", "opt_out", "refused", "store", "ours"})


class Becomes(Enum):
    """What becomes of the request."""

    IMAGE = "an image event"
    LINK_ROT = "a link rot event"
    PROBE = "a probe event"
    WHOLE = "to the head of its queue, to be asked for without a range: not a part, but the whole picture"
    DEAD_LETTER = "a dead letter, at once"
    RETRY = "tried again at the cost of a retry; a dead letter once these are spent"
    FREE_RETRY = "tried again, the first times at no cost (politeness/retry.py)"
    HANDED_BACK = "to the head of its queue, as if it had never been leased"
    POSTPONED = "back to its queue after a while, with no attempt counted"
    REDELIVERED = "back to its queue after a while, with a delivery counted; a dead letter at the last one"
    NOTHING = "nothing: it is done, counted, and has no event; a seed is a dead letter"


class Sample(Enum):
    """What the circuit of the source learns."""

    FINE = "a sample without error"
    ERROR = "a sample with an error"
    ANSWER = "no sample, but the site answered: a probe has succeeded"
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
    are those of the header of a picture that cannot be decoded.
    """

    outcome: Outcome
    reason: str
    status: int | None = None
    retry_after: float | None = None
    facts: ImageFacts | None = None


# What components find out by themselves
UNREADABLE = Outcome(Becomes.DEAD_LETTER, Sample.FINE, "decode")
NOT_HTML = Outcome(Becomes.NOTHING, Sample.FINE)
KEPT_BACK = Outcome(Becomes.DEAD_LETTER, Sample.FINE, "opt_out")  # by what a page says of itself
STORAGE_UNAVAILABLE = Outcome(Becomes.POSTPONED, Sample.NONE, "store")
STOPPED = Outcome(Becomes.HANDED_BACK, Sample.NONE)
DROPPED = Outcome(Becomes.DEAD_LETTER, Sample.NONE)  # by a pipeline, on purpose
INTERNAL_FAULT = Outcome(Becomes.REDELIVERED, Sample.NONE, "ours")

# HTTP statuses of probes, where they differ from those of whole pictures. A picture with any of these is there.
_PROBED = Outcome(Becomes.PROBE, Sample.FINE)
_NOT_IN_PARTS = Outcome(Becomes.WHOLE, Sample.ANSWER)

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
    OptedOut: Outcome(Becomes.DEAD_LETTER, Sample.ANSWER, "opt_out"),
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


def of_probe(
    status: int,
    retry_after: float | None = None,
    gone: Collection[int] = (),
    *,
    begins: bool | None,
    conditional: bool,
) -> Outcome:
    """Return the outcome of a response to a probe, as `of_status` does to other requests.

    `begins`: whether what a 206 brings is the beginning of the picture; None: the whole of it was asked for.
    `conditional`: it was asked for on a condition, which a 304 answers.
    """
    if status == 200 or (status == 206 and begins) or (status == 304 and conditional):
        return _PROBED
    if begins is not None and status in {206, 416}:
        return _NOT_IN_PARTS
    return of_status(status, retry_after, gone)


def of_exception(error: BaseException) -> Outcome:
    """Return the outcome of a request that ended with `error` in place of a response."""
    return next(_BY_EXCEPTION[cls] for cls in type(error).__mro__ if cls in _BY_EXCEPTION)
