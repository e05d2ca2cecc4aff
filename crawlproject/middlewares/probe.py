"""Asks for the beginnings of pictures that are only probed, and on the condition that they have changed."""

from __future__ import annotations

from scrapy import Request
from scrapy.http import Response

from crawlproject.frontier.codec import seed_url
from crawlproject.models import PROBE
from crawlproject.politeness.conditions import CONDITIONS
from crawlproject.politeness.outcomes import Becomes
from crawlproject.politeness.probes import PROBE_BYTES, Known, outcome_of


class ProbeMiddleware:
    """Sends the headers of a probe; where a site does not give parts, it is asked once more, for the whole.

    That request goes by way of the frontier, and takes a slot like any other. What the address that answered the
    last time has called its version is sent to that address alone.
    """

    def process_request(self, request: Request) -> None:
        """Set range and conditions; a request that was redirected may have those of where it came from."""
        if PROBE not in request.meta:
            return
        for name in ("Range", *CONDITIONS):
            request.headers.pop(name, None)
        known = Known.of(request.meta[PROBE])
        request.headers["Accept-Encoding"] = "identity"
        if not known.whole:
            request.headers["Range"] = f"bytes=0-{PROBE_BYTES - 1}"
        if request.url == (known.final_url or seed_url(request)):
            request.headers.update(known.version.conditions)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        """Return the response, or the request for the whole."""
        if PROBE not in request.meta:
            return response
        known = Known.of(request.meta[PROBE])
        if outcome_of(response, request, known).becomes is not Becomes.WHOLE:
            return response
        return request.replace(meta={**request.meta, PROBE: known._replace(whole=True).stored})
