"""How what was seen is kept, for the log: which settings hold, and what the Redis at hand makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from crawlproject.state.client import State
from crawlproject.texts import printable

_LARGEST_BUCKET = 512  # Redis' own default; with 400 on average, none is larger


async def seen_filter_notes(state: State) -> tuple[str, list[str]]:
    """Return how what was seen is kept, as a sentence, and what of the settings or of Redis does not fit that."""
    client: Any = state.redis
    kept = await client.hmget(state.keys.seen_meta, "exact", "exact_count", "bloom", "bloom_count")
    exact, exact_count, bloom, bloom_count = (
        printable((value or b"").decode(errors="replace").strip(), 200) for value in kept
    )
    rules, warnings = state.config.seen, []
    if not exact:
        said = f"not begun; exact, for {rules.seen_capacity} requests at first"
    else:
        said = f"exact, {_generations(exact.split(), exact_count)}"
    if bloom:
        said += f"; links in Bloom filters, {_generations(bloom.split(), bloom_count)}"
        if not rules.seen_rate:
            warnings.append(
                "CRAWL_SEEN_LINKS=exact: new links are kept exactly from now on; what the Bloom filters have of "
                "former ones is still looked up there, with their false positives"
            )
        elif (rate := _promised(bloom)) is not None and abs(rate / rules.seen_rate - 1) > 0.001:
            warnings.append(
                f"CRAWL_SEEN_LINKS=bloom:{rules.seen_rate:g} holds from the next Bloom filter on; the present "
                f"one was made for bloom:{rate:g}"
            )
    elif rules.seen_rate:
        said += f"; new links in Bloom filters (CRAWL_SEEN_LINKS=bloom:{rules.seen_rate:g})"
    if (longest := await _longest_intset(client)) is not None and longest < _LARGEST_BUCKET:
        warnings.append(
            f"set-max-intset-entries of this Redis is {longest}: above it each seen request takes ten times the "
            f"memory; set it to {_LARGEST_BUCKET}, its default"
        )
    return f"Seen filter: {said}", warnings


def _promised(words: str) -> float | None:
    """Return the rate for which Bloom filters were made: the last one has its own share of it."""
    generations = words.split()
    try:
        return float(generations[-1].rpartition("/")[2]) * float(2 ** len(generations))
    except ValueError:
        return None


def _generations(words: Sequence[str], count: str) -> str:
    """Return how full the last of several generations is."""
    return f"generation {len(words)} with {count or 0} of {words[-1].partition('/')[0]}"


async def _longest_intset(client: Any) -> int | None:
    """Return up to how many integers this Redis keeps a set of them small; None where it does not tell."""
    try:
        found = await client.config_get("set-max-intset-entries")
        return int(found["set-max-intset-entries"])
    except (redis.ResponseError, KeyError, ValueError):  # a managed Redis may not let anyone ask
        return None
