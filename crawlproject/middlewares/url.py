"""Keeps URLs that nobody should have given us from being asked."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from scrapy.http import Response

from crawlproject.errors import UrlRefused
from crawlproject.frontier.seeds import LONGEST_URL
from crawlproject.texts import url_fault


class UrlMiddleware(RedirectMiddleware):
    """Scrapy's redirects, but none to a URL that would not be taken as a seed; nor is any other such request sent.

    A Location with a user name or password is refused before it is logged, stored, or sent on as a Referer.
    """

    def process_request(self, request: Request) -> None:
        """Let `request` pass: one that an older version has stored, or somebody else, may not be what a seed is.

        Raises:
            UrlRefused: it is not asked.

        """
        if fault := url_fault(request.url):
            raise UrlRefused(fault)

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Return the response, or the request that it redirects to.

        Raises:
            UrlRefused: that is not asked.

        """
        try:
            return super().process_response(request, response)
        except ValueError:
            raise UrlRefused("redirect to a url that is none") from None

    def _redirect(self, redirected: Request, request: Request, reason: Any) -> Request:
        if len(redirected.url) > LONGEST_URL:
            raise UrlRefused(f"redirect to a url of {len(redirected.url)} characters, more than {LONGEST_URL}")
        if fault := url_fault(redirected.url):
            raise UrlRefused(f"redirect to a {fault}")
        return super()._redirect(redirected, request, reason)
