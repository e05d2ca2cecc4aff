"""Keeps a spider within its `allowed_domains`."""

from __future__ import annotations

from scrapy import Request, Spider
from scrapy.downloadermiddlewares import offsite

from crawlproject.models import LEASE


class OffsiteMiddleware(offsite.OffsiteMiddleware):
    """Scrapy's middleware, but redirects that lead away are refused where they are made (redirect.py).

    Scrapy drops them before the scheduler sees them, which could not tell that from a fault.
    """

    def request_scheduled(self, request: Request, spider: Spider) -> None:
        """Refuse a new request that leads away.

        Raises:
            IgnoreRequest: it does.

        """
        if LEASE not in request.meta:
            super().request_scheduled(request, spider)
