"""The mode `probe` of the spider `images`: what is asked for of a picture, and the item that it becomes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlproject.contrib.probes.events import PROBE_BYTES, ProbedFacts, ProbeEvent
from crawlproject.contrib.probes.known import PROBE, UNCHANGED, Known, Part, is_not_in_parts, known_of, outcome_of
from crawlproject.frontier.codec import seed_url
from crawlproject.frontier.modes import Mode
from crawlproject.imaging.codings import content_codings
from crawlproject.imaging.messages import Inspected, Reply, facts_of
from crawlproject.models import MODE
from crawlproject.politeness.outcomes import Outcome
from crawlproject.politeness.versions import CONDITIONS, Version

_FACTS = tuple(field.name for field in fields(ProbedFacts))


class Probe(Mode):
    """Fetches the beginning of a picture, enough for its size, and to see that it is there."""

    # One more than a site is asked for: with the last byte of an answer its connection may serve the next one.
    wanted_bytes = PROBE_BYTES + 1

    def stored(self, value: Any) -> Mapping[str, Any]:
        """Return what is known of the picture, as it is stored."""
        return Known.of(value).stored

    def outcome(self, response: Response, request: Request, gone: Collection[int]) -> Outcome:
        """Return the outcome of a response."""
        return outcome_of(response, request, Known.of(request.meta[MODE][1]), gone)

    def item(self, said: Mapping[str, Any], response: Response, request: Request) -> ProbeEvent | Inspected:
        """Return the item of a picture that is there; one that has not changed has sent nothing to look at."""
        known, is_unchanged = Known.of(request.meta[MODE][1]), response.status == 304
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        body = response.body[:PROBE_BYTES]
        total, whole = _extent(response, len(body))
        filesize = None if codings else total  # a coded size is not the picture's
        told: dict[str, Any] = {**dict.fromkeys(_FACTS), **said}
        if is_unchanged:  # a site need not repeat what it was asked by
            filesize = known.filesize if known.filesize >= 0 else None
            told |= {name: told[name] or getattr(known, name) or None for name in ("etag", "last_modified")}
        version = Version(told["etag"] or "", told["last_modified"] or "")
        event = ProbeEvent(
            **told,
            filesize=filesize,
            revisit=UNCHANGED if is_unchanged else known.found(version, filesize),
            received=len(response.body),
            status=response.status,
        )
        if is_unchanged:
            return event

        def with_facts(reply: Reply) -> ProbeEvent:
            facts = facts_of(ProbedFacts, json.loads(reply.text), reply, reply.job.max_pixels, unknown=_FACTS)
            return replace(event, **asdict(facts))

        inspection = "whole" if whole else "beginning"
        return Inspected(inspection, with_facts, event.source, event.status, body, codings)


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


def _extent(response: Response, kept: int) -> tuple[int | None, bool]:
    """Return how many bytes the body has in all, None for unknown, and whether the first `kept` are all of it."""
    received = len(response.body)
    if response.status == 206:
        part = Part.of(response.headers.get("Content-Range"))
        if part is None or part.total is None or part.total < received:  # the last is none
            return None, False
        return part.total, part.total == kept
    if "download_stopped" not in response.flags:
        return received, received == kept
    length = response.headers.get("Content-Length") or b""
    return int(length) if length.isdigit() and len(length) < 19 else None, False
