"""Which spiders a namespace has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redis.exceptions import ResponseError

from crawlproject.state.client import State

_MOST = 16  # spiders, those that have asked for work last
_NAME = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
)  # of another's spider: commands with it are copied into shells


async def present_spiders(state: State, project: Sequence[str] = ()) -> list[str]:
    """Return the spiders that have something in this namespace: seeds, requests, or totals of what was done.

    Those of `project` come first, in that order; then others that share its Redis, and have asked for work.
    """
    redis: Any = state.redis
    try:
        asked = await redis.zrevrange(state.keys.spiders, 0, _MOST - 1)
    except ResponseError:  # a key that holds something else
        asked = []
    others = sorted(name.decode(errors="replace") for name in asked)
    names = [*project, *filter(_NAME.fullmatch, others)]
    names = list(dict.fromkeys(names))
    async with redis.pipeline(transaction=False) as pipe:
        for name in names:
            keys = replace(state.keys, spider=name)
            pipe.exists(keys.seeds, keys.outstanding, keys.totals)
        found = await pipe.execute()
    return [name for name, number in zip(names, found, strict=True) if number]
