"""Enforces robots.txt on every request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.errors import RobotsDisallowed, RobotsOptOut, RobotsUnreachable
from crawlproject.frontier.worker import worker_of
from crawlproject.models import IDENTIFIER, LEASE, OPT_OUT, SLOT, SOURCE
from crawlproject.robots.verdicts import refusal_for_opt_outs
from crawlproject.sources.domains import domain_of_url


class RobotsMiddleware:
    """Lets a request pass if the robots.txt of its host allows it (RFC 9309) and declares no opt-out for it.

    The frontier looks the verdict up before it lets a leased request go; if it has expired since, the request goes
    back there. A request without a lease (`scrapy shell`) waits for the verdict here.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self._keeps_all = getattr(crawler.spidercls, "one_item_each", False)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Return None to let `request` pass, or the request itself to send it back to the frontier.

        Raises:
            RobotsDisallowed, RobotsOptOut, RobotsUnreachable: it may not be fetched or kept, or not now.

        """
        if SLOT in request.meta:  # a robots.txt itself
            return None
        robots = worker_of(self.crawler).robots
        lease = request.meta.get(LEASE)
        source = lease.source if lease is not None else request.meta.get(SOURCE, domain_of_url(request.url))
        verdict = robots.verdict(request.url, source)
        if verdict is None and lease is not None:
            return request
        if verdict is None:
            verdict = await robots.look_up(request.url, source)
        if verdict is None:
            raise RobotsUnreachable("robots unreachable: no answer in time", 60.0)
        if verdict.allowed:
            if IDENTIFIER in request.meta or (lease is not None and self._keeps_all):
                self._heed(request, verdict.opt_outs)
            return None
        self.crawler.stats.inc_value("robots/refused" if verdict.retry_in is None else "robots/unreachable")
        if verdict.retry_in is not None:
            raise RobotsUnreachable(verdict.reason, verdict.retry_in)
        raise RobotsDisallowed(f"robots.txt: {verdict.reason}")

    def _heed(self, request: Request, declared: Mapping[str, str]) -> None:
        """Note the opt-outs with a request for a picture or page, in place of those of a redirect's origin.

        Raises:
            RobotsOptOut: one of them forbids keeping it, so it is not even fetched.

        """
        request.meta.pop(OPT_OUT, None)
        if refusal := refusal_for_opt_outs(declared, self.config):
            self.crawler.stats.inc_value("robots/opted_out")
            raise RobotsOptOut(f"opt-out: robots.txt: {refusal}")
        if declared:
            request.meta[OPT_OUT] = sorted(declared)
