"""Follows redirects, but only to URLs that would be accepted as seeds."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from scrapy.http import Response

from crawlproject.errors import AddressRefused
from crawlproject.middlewares.offsite import OffsiteMiddleware
from crawlproject.sources.domains import url_fault, with_canonical_host
from crawlproject.texts import LONGEST_URL


class CheckedRedirectMiddleware(RedirectMiddleware):
    """Scrapy's redirects, except to a URL that would not be accepted as a seed.

    A Location with a user name or password is refused before it is logged, stored, or sent on as a Referer; one
    beyond the spider's `allowed_domains` before it takes a slot there.
    """

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Return the response, or the request that it redirects to.

        Raises:
            AddressRefused: the URL redirected to is not accepted.
            IgnoreRequest: the spider does not want it.

        """
        try:
            return super().process_response(request, response)
        except ValueError:
            raise AddressRefused("redirect to an invalid URL") from None

    def _redirect(self, redirected: Request, request: Request, reason: Any) -> Request:
        if len(redirected.url) > LONGEST_URL:
            raise AddressRefused(f"redirect to a URL of {len(redirected.url)} characters, more than {LONGEST_URL}")
        redirected = redirected.replace(url=with_canonical_host(redirected.url))
        if fault := url_fault(redirected.url):
            raise AddressRefused(f"bad redirect: {fault}")
        if (offsite := self.crawler.get_downloader_middleware(OffsiteMiddleware)) is not None:
            offsite.process_request(redirected)
        return super()._redirect(redirected, request, reason)
