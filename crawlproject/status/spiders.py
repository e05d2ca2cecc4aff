"""Which spiders a namespace has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import redis

from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards

_MOST = 16  # spiders, those whose workers were there last
_NAME = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
)  # of another's spider: commands with it are copied into shells


async def present_spiders(state: State, project: Sequence[str] = ()) -> list[str]:
    """Return the spiders that have something in this namespace: seeds, requests, or totals of what was done.

    Those of `project` come first, in that order; then others that share its Redis, and have had workers.

    Raises:
        redis.ConnectionError: no shard answers.
        REDIS_TROUBLE: of the only shard.

    """
    found, away = await ask_shards(state.shards, lambda shard: _present_in(shard, project))
    if not found:
        raise redis.ConnectionError(f"no shard answers: {next(iter(away.values()))}")
    names = dict.fromkeys(name for present in found.values() for name in present)
    return [name for name in project if name in names] + sorted(names.keys() - set(project))


async def _present_in(state: State, project: Sequence[str]) -> list[str]:
    """Return those of one shard."""
    client: Any = state.redis
    asked = await client.zrevrange(state.keys.spiders, 0, _MOST - 1)
    others = sorted(name.decode(errors="replace") for name in asked)
    names = [*project, *filter(_NAME.fullmatch, others)]
    names = list(dict.fromkeys(names))
    async with client.pipeline(transaction=False) as pipe:
        for name in names:
            keys = replace(state.keys, spider=name)
            pipe.exists(keys.seeds, keys.counters, keys.totals)
        found = await pipe.execute()
    return [name for name, number in zip(names, found, strict=True) if number]
