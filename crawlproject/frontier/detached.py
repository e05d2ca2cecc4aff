"""Requests that a spider's callbacks and errbacks yield: each is new, whatever meta it was given."""

from __future__ import annotations

from scrapy import Request

from crawlproject.models import (
    AGAIN,
    EXTRA,
    FETCH_TIME,
    FOUND,
    FREE_RETRIES,
    IDENTIFIER,
    LEASE,
    LED_BY,
    OPT_OUT,
    PACED_AS,
    PASSAGE,
    RETRIES,
    SLOT,
    TLS_FAILURE,
)

# What belongs to the request that led there. `Request(url, meta=response.meta)` would take it along.
_OF_ONE_REQUEST = frozenset(
    {
        *(LEASE, LED_BY, PACED_AS, PASSAGE, SLOT, RETRIES, FREE_RETRIES, AGAIN),
        *(IDENTIFIER, EXTRA, FOUND, OPT_OUT, TLS_FAILURE, FETCH_TIME),
    }
)
_OF_ONE_DOWNLOAD = ("redirect_", "download_")


def detached(request: Request) -> Request:
    """Return `request`, or a copy of it, without what belongs to the request that led there."""
    kept = {
        name: value
        for name, value in request.meta.items()
        if name not in _OF_ONE_REQUEST and not name.startswith(_OF_ONE_DOWNLOAD)
    }
    return request if len(kept) == len(request.meta) else request.replace(meta=kept)
