"""Honours the opt-outs that a response declares."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawlproject import config
from crawlproject.errors import OptedOut
from crawlproject.models import IDENTIFIER, OPT_OUT, OPT_OUTS
from crawlproject.politeness.optouts import opt_outs

_KEPT = {200, 206, 304}  # statuses by which something is kept: 206 and 304 of probes


class OptOutMiddleware:
    """Drops a picture if its headers declare an opt-out in `CRAWL_OPT_OUTS`; records all others.

    The recorded opt-outs go with the request, as `meta["opt_out"]`, beside those of its robots.txt.
    """

    def __init__(self, settings: config.Config) -> None:
        self.forbidding = frozenset(settings.opt_outs)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware with the opt-outs that forbid keeping anything."""
        return cls(config.load(crawler.settings))

    def process_response(self, request: Request, response: Response) -> Response:
        """Return the response.

        Raises:
            OptedOut: its owner forbids keeping anything of the picture.

        """
        # Only pictures: other responses, robots.txt above all, may well declare "noindex" for themselves.
        if response.status not in _KEPT or IDENTIFIER not in request.meta:
            return response
        declared = opt_outs(response.headers, datetime.now(UTC))
        if refused := [f"{name} ({OPT_OUTS[name]})" for name in declared if name in self.forbidding]:
            raise OptedOut(", ".join(refused), response.status)
        if declared:
            request.meta[OPT_OUT] = sorted({*declared, *request.meta.get(OPT_OUT, ())})
        return response
