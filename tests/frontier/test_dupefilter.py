"""Where a request is kept in the seen filter."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from scrapy import Request

from crawlproject.frontier.dupefilter import SeenAddress, SeenFilter
from crawlproject.models import IDENTIFIER, RETRIES

SEEN = SeenFilter()


def address(identifier: str | None, url: str = "https://museum.org/a.jpg", **more: Any) -> SeenAddress:
    return SEEN.address(Request(url, meta={} if identifier is None else {IDENTIFIER: identifier}, **more))


def test_addresses_never_change() -> None:
    """What was seen last year must be found where it was put: a change here forgets half a billion of them."""
    assert address("6f1c") == SeenAddress("f88e9", 8_666_909_410_364)
    assert address(None) == SeenAddress("c9fe7", 4_526_985_325_557)


def test_the_address_depends_on_identifier_and_url_only() -> None:
    assert address("1") == address("1", priority=4, headers={"A": "b"}, dont_filter=True)
    assert address("1") == SEEN.address(Request("https://museum.org/a.jpg", meta={IDENTIFIER: "1", RETRIES: 1}))
    others = {
        address("1"),
        address("2"),
        address(""),
        address("1", "https://museum.org/b.jpg"),
        address("1", "http://museum.org/a.jpg"),
        address("1", "https://museum.org/a.jpg?b"),
        address("馬"),
    }
    assert len(others) == 7


def test_addresses_are_spread_over_buckets_and_within_bounds() -> None:
    many = [address(str(number)) for number in range(5000)]
    assert len(set(many)) == 5000
    assert all(len(bucket) == 5 and int(bucket, 16) < 2**20 and 0 <= member < 2**44 for bucket, member in many)
    assert len({bucket for bucket, _ in many}) > 4900
    assert max(member for _, member in many) > 0.99 * 2**44
    assert min(member for _, member in many) < 0.01 * 2**44


@pytest.mark.parametrize("count", [1, 512])
def test_redis_keeps_a_bucket_of_members_as_integers(redis_url: str, count: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.sadd("seen", *(str(address(str(number)).member) for number in range(count)))
        assert client.object("encoding", "seen") == b"intset"
        used = client.memory_usage("seen")
        assert used is not None
        assert used < 130 + 10 * count
