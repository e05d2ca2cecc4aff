"""Keeps requests away from addresses that must not be crawled: private networks, unusual ports, other schemes."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import CannotResolveHostError

from crawlproject import config
from crawlproject.errors import AddressRefused, NoNameServer
from crawlproject.frontier.worker import worker_of
from crawlproject.models import LEASE
from crawlproject.sources.domains import url_fault


class AddressMiddleware:
    """Lets a request pass if its URL and its host's addresses may be crawled (politeness/addresses.py).

    The frontier looks the host up before it lets a leased request go; if the answer has expired since, the request
    goes back there. This middleware gives a clear reason early; the guarantee is the resolver's (net/resolver.py),
    which never returns a forbidden address, wherever a request comes from.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`.

        Raises:
            ConfigError: a setting would bypass the address guard.

        """
        config.check_guarded(crawler.settings)
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Return None to let `request` pass, or the request itself to send it back to the frontier.

        Raises:
            AddressRefused: the URL or an address of its host is forbidden.
            CannotResolveHostError: the host name does not resolve.
            NoNameServer: it is unknown whether it does.

        """
        resolver = worker_of(self.crawler).resolver
        if request.meta.get("proxy"):
            raise AddressRefused("a proxy would connect to unchecked addresses")
        if fault := url_fault(request.url):
            raise AddressRefused(fault)
        if not resolver.knows(request.url):
            if LEASE in request.meta:
                return request
            await resolver.look_up(request.url)
            if not resolver.knows(request.url):
                raise NoNameServer(resolver.outage or "the host could not be looked up")
        if refused := resolver.refusal(request.url):
            self.crawler.stats.inc_value("addresses/refused")
            raise AddressRefused(f"address refused: {refused}")
        if failure := resolver.failure(request.url):
            raise CannotResolveHostError(failure)
        return None
