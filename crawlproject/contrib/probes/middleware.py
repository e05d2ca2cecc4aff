"""The requests of probes: their headers, and the second one where a site does not give parts."""

from __future__ import annotations

from scrapy import Request
from scrapy.http import Response

from crawlproject.contrib.probes.events import PROBE_BYTES
from crawlproject.contrib.probes.known import PROBE, is_not_in_parts, known_of
from crawlproject.frontier.codec import seed_url
from crawlproject.models import MODE
from crawlproject.politeness.versions import CONDITIONS


class ProbeMiddleware:
    """Sends the headers of a probe; where a site does not give parts, it is asked once more, for the whole.

    That request goes by way of the frontier, and takes a slot like any other. What the address that answered the
    last time has called its version is sent to that address alone.
    """

    def process_request(self, request: Request) -> None:
        """Set range and conditions; a request that was redirected may have those of where it came from."""
        if (known := known_of(request)) is None:
            return
        for name in ("Range", *CONDITIONS):
            request.headers.pop(name, None)
        request.headers["Accept-Encoding"] = "identity"
        if not known.whole:
            request.headers["Range"] = f"bytes=0-{PROBE_BYTES - 1}"
        if request.url == (known.final_url or seed_url(request)):
            request.headers.update(known.version.conditions)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        """Return the response, or the request for the whole."""
        known = known_of(request)
        if known is None or not is_not_in_parts(response, known):
            return response
        return request.replace(meta={**request.meta, MODE: [PROBE, known._replace(whole=True).stored]})
