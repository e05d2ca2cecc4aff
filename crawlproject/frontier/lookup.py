"""Where in the frontier a request is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from crawlproject.frontier.contents import read_leases
from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.state.numbers import whole_number

MOST = 10_000  # requests of each list that are looked at
_PAGE = 1000


class Place(NamedTuple):
    """Where a request is: `in_flight`, `queued`, `delayed`, or `waiting` beyond its source's share or window.

    `priority` is its class, 0 to 4; `ahead` the requests before it in the same list, None where there is no order.
    """

    where: str
    priority: int
    ahead: int | None = None


async def find_request(state: State, source: str, is_it: Callable[[bytes], bool]) -> Place | None:
    """Return the place of the first request of `source` that `is_it` says yes to; None where it is not found."""
    redis, keys = state.redis, state.keys
    client: Any = redis
    async for _, entry in read_leases(state):
        if is_it(entry):
            return Place("in_flight", _priority(entry))
    for where, prefix in (("queued", keys.queue_of), ("waiting", keys.overflow_of)):
        for priority in reversed(range(PRIORITIES)):
            ahead = await _search(client, f"{prefix}{priority}:{source}", is_it)
            if ahead is not None:
                return Place(where, priority, ahead)
    delayed = await client.zrange(keys.delayed_of + source, 0, MOST - 1)
    found = next((entry for entry in delayed if is_it(entry)), None)
    return None if found is None else Place("delayed", _priority(found))


async def _search(redis: Any, key: str, is_it: Callable[[bytes], bool]) -> int | None:
    for first in range(0, MOST, _PAGE):
        entries = await redis.lrange(key, first, first + _PAGE - 1)
        for index, entry in enumerate(entries):
            if is_it(entry):
                return first + index
        if len(entries) < _PAGE:
            return None
    return None


def _priority(entry: bytes) -> int:
    return min(entry[2], PRIORITIES - 1) if len(entry) > 2 else 0


class NextLook(NamedTuple):
    """When a page is looked at again, in seconds from now, and after which interval (s)."""

    due_s: float
    interval_s: float


async def next_look(state: State, source: str, digest: bytes) -> NextLook | None:
    """Return when `source`'s page with this digest for the seen filter is looked at again; None for never."""
    redis: Any = state.redis
    line = await redis.hget(state.keys.revisits_of + source, digest)
    numbers = [whole_number(part) for part in (line or b"").partition(b"\n")[0].split(b" ")]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    seconds, micros = await redis.time()
    now = seconds * MICROS + micros
    return NextLook(round((numbers[0] - now) / MICROS, 1), numbers[1] / MICROS)
