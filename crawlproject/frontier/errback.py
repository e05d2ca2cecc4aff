"""The errback of a leased request: whether it is tried again comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from scrapy import Request
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from crawlproject.models import LED_BY, Lease


class LeasedErrback:
    """Takes the place of a request's errback, `own`, while the request is leased.

    `is_settled` says whether nobody else is to learn of the failure: the request is tried again, say. As with
    Scrapy's retries, the spider's errback is called once, when the request has been given up. The lease ends when
    the requests that it yields are stored: they name it, as those of a callback do.
    """

    def __init__(
        self,
        own: Callable[[Failure], Any] | None,
        lease: Lease,
        is_settled: Callable[[Lease, Failure], bool],
    ) -> None:
        self.own = own
        self._lease = lease
        self._is_settled = is_settled

    def __call__(self, failure: Failure) -> Any:
        """Return what the spider's errback returns; the failure itself where there is none."""
        if self._is_settled(self._lease, failure):
            return None
        output = failure if self.own is None else self.own(failure)
        return output if output is None or isinstance(output, Failure) else self._found(output)

    async def _found(self, output: Any) -> AsyncIterator[Any]:
        found = await ensure_awaitable(iterate_spider_output(output))
        if isinstance(found, AsyncIterator):
            async for one in found:
                yield self._of_its_own(one)
        else:
            for one in found:
                yield self._of_its_own(one)

    def _of_its_own(self, one: Any) -> Any:
        if isinstance(one, Request):
            one.meta[LED_BY] = self._lease
        return one
