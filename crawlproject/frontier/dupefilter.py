"""The seen filter: by which digest it knows a request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter

from crawlproject.models import IDENTIFIER, PROBE, SITEMAP


class SeenFilter(BaseDupeFilter):
    """Takes the place of scrapy-redis' dupefilter: says by which digest the shared seen filter knows a request.

    The function `enqueue` checks whether it was seen, in the same step that stores it; the scheduler never calls
    `request_seen`. How what was seen is kept stands in the Lua module `seen_filter`.
    """

    def digest(self, request: Request) -> bytes:
        """Return the digest of `request`, 8 bytes."""
        return digest_of(name_in(request.meta), request.url)


def name_in(meta: Mapping[str, Any]) -> str:
    """Return what the seen filter knows a request by, beside its URL: the identifier of its picture, if any.

    A sitemap is another request than a page at its address, and the probe of a picture than its fetch.
    """
    name: str = meta.get(IDENTIFIER, "sitemap" if SITEMAP in meta else "")
    return f"probe\n{name}" if PROBE in meta else name


def digest_of(identifier: str, url: str) -> bytes:
    """Return the digest of the request for `url`, as its seed had it: 8 bytes.

    Of SHA-1, which Redis has, too: so a function can forget what it drops (`naming.digest_of`).
    """
    return hashlib.sha1(f"{identifier}\n{url}".encode(), usedforsecurity=False).digest()[:8]
