"""The seen filter: where a request is kept in it."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter

from crawlproject.models import IDENTIFIER

_MEMBER_BITS = 44


class SeenAddress(NamedTuple):
    """Where the seen filter keeps a request: a bucket, and the member within it."""

    bucket: str
    member: int


class SeenFilter(BaseDupeFilter):
    """Takes the place of scrapy-redis' dupefilter: says where a request belongs in the shared seen filter.

    The enqueue script checks whether it was seen, in the same step that stores it; the scheduler never calls
    `request_seen`.

    A request is represented by the 64-bit hash of its identifier and URL. Redis stores small sets of integers in
    8 bytes per member, so the upper 20 bits choose one of a million sets and the lower 44 are the member: 9 bytes
    per request at half a billion requests (477 per set; beyond 512, `set-max-intset-entries`, a set needs five
    times that). Among half a billion the chance that any two share a hash is under one in a hundred.
    """

    def address(self, request: Request) -> SeenAddress:
        """Return the place of `request`."""
        return address_of(request.meta.get(IDENTIFIER, ""), request.url)


def address_of(identifier: str, url: str) -> SeenAddress:
    """Return the place of the request for `url`, as its seed had it."""
    number = int.from_bytes(hashlib.blake2b(f"{identifier}\n{url}".encode(), digest_size=8).digest())
    return SeenAddress(f"{number >> _MEMBER_BITS:05x}", number & ((1 << _MEMBER_BITS) - 1))
