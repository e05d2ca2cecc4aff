"""What is excluded from the crawl, by whom and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

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
    names = sorted({name async for name in state.redis.sscan_iter(state.keys.excluded, count=_PAGE)})
    found: list[ExcludedName] = []
    for first in range(0, len(names), _PAGE):
        page = names[first : first + _PAGE]
        said = await state.redis.hmget(state.keys.excluded_by, page)
        found += [_excluded(*parts) for parts in zip(page, said, strict=True)]
    return found


async def noted_exclusion(state: State, name: str) -> ExcludedName:
    """Return what is noted of the exclusion of `name`."""
    return _excluded(name.encode(), await state.redis.hget(state.keys.excluded_by, name))


def _excluded(name: bytes, noted: bytes | None) -> ExcludedName:
    said = _said(noted)
    in_file = "file" in said
    by = said.get("by") or ("CRAWL_EXCLUDE" if in_file else "operator, by key")
    reason = said.get("reason") or said.get("file", "")
    return ExcludedName(name.decode(errors="replace"), by, said.get("time"), reason, in_file)


def _said(noted: bytes | None) -> dict[str, str]:
    """Return what exclude.lua has noted of a name."""
    said: dict[str, str] = {} if noted is None else json.loads(noted)
    return said


async def exclusion_of(state: State, source: str, host: str) -> str | None:
    """Return the name because of which nothing of `source` goes out to `host`; None if it may."""
    names = [source, *domains_above(host)]
    found = await state.redis.smismember(state.keys.excluded, names)
    return next((name for name, is_excluded in zip(names, found, strict=True) if is_excluded), None)


async def names_of_file(state: State, cursor: int) -> tuple[int, list[str]]:
    """Return some of the names that a leader's CRAWL_EXCLUDE has had, and where to continue; 0 at the end."""
    following, found = await state.redis.hscan(state.keys.excluded_by, cursor, count=_PAGE)
    return int(following), [
        name.decode(errors="replace") for name, noted in found.items() if "file" in _said(noted)
    ]


async def are_published(state: State, names: Mapping[str, str]) -> list[bool]:
    """Tell of each name of the file whether Redis has it already, with its comment."""
    async with state.redis.pipeline(transaction=False) as pipe:
        pipe.hmget(state.keys.excluded_by, list(names))
        pipe.smismember(state.keys.excluded, list(names))
        noted, members = await pipe.execute()
    return [
        member == 1 and _said(one).get("file") == comment
        for one, comment, member in zip(noted, names.values(), members, strict=True)
    ]
