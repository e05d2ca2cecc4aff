"""What only the spiders `images` and `pages` need: second looks at pages, link rot by the catalogue."""

from __future__ import annotations

from scrapy import Request
from scrapy.http import Response

from crawlproject.errors import Stopped
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.middlewares import Middleware
from crawlproject.models import GONE, GONE_STATUSES, IDENTIFIER, LEASE, REVISIT
from crawlproject.pages.revisits import Look
from crawlproject.politeness.versions import CONDITIONS
from crawlproject.state import source_table
from crawlproject.state.client import REDIS_TROUBLE


class RevisitMiddleware(Middleware):
    """Sends what the address that answered the last time has called its version, to that address alone.

    A page that is not in the content store yet is asked for without a condition.
    """

    def process_request(self, request: Request) -> None:
        """Set the conditions; a request that was redirected may have those of where it came from."""
        for name in CONDITIONS:
            request.headers.pop(name, None)
        if REVISIT in request.meta:
            look = Look(*request.meta[REVISIT])
            keeps_pages = getattr(self.crawler.spider, "keeps_exchanges", False)
            if look.url == request.url and (look.kept_at or not keeps_pages):
                request.headers.update(look.conditions)


class GoneMiddleware(Middleware):
    """Notes with a request what its source's row of the catalogue calls link rot, if it matters for the answer."""

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return the response.

        Raises:
            Stopped: Redis cannot say it: the request goes back, as if it had never been sent.

        """
        if response.status in GONE_STATUSES - {404, 410} and IDENTIFIER in request.meta and LEASE in request.meta:
            state, source = scheduler_of(self.crawler).state, request.meta[LEASE].source
            try:
                request.meta[GONE] = await source_table.gone_statuses(state, source)
            except REDIS_TROUBLE as error:
                state.failed(error)
                raise Stopped(f"Redis does not tell what is link rot at {source}") from error
        return response
