"""What a failed attempt says: why, for people, and how long the site wants to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from scrapy.exceptions import DownloadCancelledError, IgnoreRequest
from scrapy.http import Response

from crawlproject.errors import CrawlprojectError, OptedOut
from crawlproject.politeness.outcomes import Outcome, Sample
from crawlproject.texts import printable


def reason_of(error: BaseException, outcome: Outcome, maxsize: int) -> str:
    """Return what an exception means, in a sentence for people."""
    text = printable(said_by(error).strip().partition("\n")[0], 300) or type(error).__name__
    if outcome.sample is Sample.ERROR:
        return f"{outcome.noted}: {text}"
    match error:
        case OptedOut():
            return f"opt-out: {error}"
        case IgnoreRequest() if isinstance(error, CrawlprojectError):
            return str(error)
        case DownloadCancelledError():
            return f"larger than DOWNLOAD_MAXSIZE ({maxsize} bytes)"
    return f"{type(error).__name__}: {text}"


def said_by(error: BaseException) -> str:
    """Return the text of an exception, or of the first of Twisted's that it comes from."""
    reasons = getattr(error.__cause__, "reasons", None)
    return str(reasons[0].value if reasons else error)


def retry_after_of(response: Response) -> float | None:
    """Return the seconds for which a response asks to be left alone (Retry-After), None if it does not."""
    value = response.headers.get("Retry-After")
    return None if value is None else retry_after(value, _their_time(response))


def retry_after(value: bytes | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header gives (RFC 9110, section 10.2.3), None if it is invalid."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - now).total_seconds(), 0.0)


def _their_time(response: Response) -> datetime:
    """Return the time by the site's clock, to which its Retry-After refers; by this machine's if it sends none."""
    try:
        then = parsedate_to_datetime((response.headers.get("Date") or b"").decode("latin-1"))
    except (ValueError, OverflowError):
        return datetime.now(UTC)
    return then if then.tzinfo is not None else then.replace(tzinfo=UTC)
