"""How what was seen is kept, for the log."""

from __future__ import annotations

from typing import Any

import redis

from crawlproject.state.client import State

_LARGEST_BUCKET = 512  # Redis' own default; with 400 on average, none is larger


async def seen_filter_notes(state: State) -> tuple[str, list[str]]:
    """Return how full the seen filter is, as a sentence, and what of this Redis does not fit it."""
    client: Any = state.redis
    generations, count = await client.hmget(state.keys.seen_meta, "generations", "count")
    words = (generations or b"").decode().split()
    said = f"generation {len(words)} with {int(count)} of {words[-1]} requests" if words else "empty"
    warnings = []
    try:
        longest = int((await client.config_get("set-max-intset-entries"))["set-max-intset-entries"])
    except (redis.ResponseError, KeyError, ValueError):  # a managed Redis may not let anyone ask
        longest = _LARGEST_BUCKET
    if longest < _LARGEST_BUCKET:
        warnings.append(
            f"set-max-intset-entries of this Redis is {longest}: above it each seen request takes ten times the "
            f"memory; set it to {_LARGEST_BUCKET}, its default"
        )
    return f"Seen filter: {said}", warnings
