"""What is excluded from the crawl, by whom and why; and what was dropped because of that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from crawlproject.exclusions.names import domains_above
from crawlproject.state.client import REDIS_TROUBLE, State

_PAGE = 1000  # names a call


class ExcludedName(NamedTuple):
    """A source or domain that is excluded: by whom, when (None where it is not known) and why ("": not said).

    `in_file`: the leader's CRAWL_EXCLUDE names it, and `reason` may be the comment in its line.
    """

    name: str
    by: str
    time: str | None
    reason: str
    in_file: bool


async def excluded_names(state: State) -> list[ExcludedName]:
    """Return all that is excluded, sorted: by what the first shard that answers says, all say the same.

    Raises:
        REDIS_TROUBLE: none answers.

    """
    for shard in state.shards[:-1]:
        with suppress(*REDIS_TROUBLE):
            return await _excluded_names(shard)
    return await _excluded_names(state.shards[-1])


async def _excluded_names(state: State) -> list[ExcludedName]:
    redis: Any = state.redis
    names = sorted({name async for name in redis.sscan_iter(state.keys.excluded, count=_PAGE)})
    found: list[ExcludedName] = []
    for first in range(0, len(names), _PAGE):
        page = names[first : first + _PAGE]
        async with state.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(state.keys.excluded_by, page)
            pipe.hmget(state.keys.excluded_by_file, page)
            orders, comments = await pipe.execute()
        found += [_excluded(*parts) for parts in zip(page, orders, comments, strict=True)]
    return found


async def noted_exclusion(state: State, name: str) -> ExcludedName:
    """Return what is noted of the exclusion of `name`."""
    redis: Any = state.redis
    order = await redis.hget(state.keys.excluded_by, name)
    comment = await redis.hget(state.keys.excluded_by_file, name)
    return _excluded(name.encode(errors="surrogateescape"), order, comment)


def _excluded(name: bytes, order: bytes | None, comment: bytes | None) -> ExcludedName:
    noted: Any = None
    if order is not None:
        try:
            noted = json.loads(order)
        except ValueError:  # not written by crawlproject
            noted = None
    said = (
        {key: value for key, value in noted.items() if isinstance(value, str)} if isinstance(noted, dict) else {}
    )
    by = said.get("by") or ("CRAWL_EXCLUDE" if comment is not None else "operator, by key")
    reason = said.get("reason") or (comment or b"").decode(errors="replace")
    return ExcludedName(name.decode(errors="replace"), by, said.get("time"), reason, comment is not None)


async def exclusion_of(state: State, source: str, host: str) -> str | None:
    """Return the name because of which nothing of `source` goes out to `host`; None if it may."""
    redis: Any = state.redis
    names = [source, *domains_above(host)]
    found = await redis.smismember(state.keys.excluded, names)
    return next((name for name, is_excluded in zip(names, found, strict=True) if is_excluded), None)


async def excluded_by_file(state: State, cursor: int) -> tuple[int, list[str]]:
    """Return some of the names that a leader's CRAWL_EXCLUDE has had, and where to continue; 0 at the end."""
    redis: Any = state.redis
    following, found = await redis.hscan(state.keys.excluded_by_file, cursor, count=_PAGE)
    return int(following), [name.decode(errors="surrogateescape") for name in found]


async def are_published(state: State, names: Sequence[str], comments: Sequence[str]) -> list[bool]:
    """Tell of each name of the file whether Redis has it already, with its comment."""
    async with state.redis.pipeline(transaction=False) as pipe:
        pipe.hmget(state.keys.excluded_by_file, names)
        pipe.smismember(state.keys.excluded, list(names))
        stored, members = await pipe.execute()
    return [
        value == comment.encode() and member == 1
        for value, comment, member in zip(stored, comments, members, strict=True)
    ]


async def oldest_dropped(state: State, count: int) -> list[bytes]:
    """Return up to `count` stored requests whose places in the seen filter are yet to be given up."""
    redis: Any = state.redis
    found: list[bytes] = await redis.lrange(state.keys.dropped, 0, count - 1)
    return found
