"""The errback of a leased request whose spider has callbacks of its own: whether it is tried again comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.python.failure import Failure


class LeasedErrback:
    """Takes the place of a request's errback, `own`, while the request is leased.

    `is_retried` says whether the request is tried again; then nobody else learns of the failure. As with Scrapy's
    retries, the spider's errback is called once, when the request has been given up.
    """

    def __init__(self, own: Callable[[Failure], Any] | None, is_retried: Callable[[Failure], bool]) -> None:
        self.own = own
        self._is_retried = is_retried

    def __call__(self, failure: Failure) -> Any:
        """Return what the spider's errback returns; the failure itself where there is none."""
        if self._is_retried(failure):
            return None
        return failure if self.own is None else self.own(failure)
