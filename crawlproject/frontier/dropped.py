"""Requests dropped from the frontier, because they are excluded or their queue was emptied."""

from __future__ import annotations

from typing import Any

from crawlproject.exclusions.stored import oldest_dropped
from crawlproject.frontier import codec
from crawlproject.frontier.dupefilter import digest_of, name_in
from crawlproject.state.client import State

DROPPED_A_CALL = 500  # requests: some milliseconds


async def drop_queued(state: State, source: str, what: str = "excluded", by: str | None = None) -> int:
    """Drop what waits of an excluded source, or, with `what` "purged", of any; return how many requests.

    No more than waited at the beginning: a source may be fed meanwhile.
    """
    scripts = state.shard_for(source).scripts
    dropped, left = await scripts.drop_queued(source, what, count=DROPPED_A_CALL, by=by)
    most = dropped + left
    all_dropped = dropped
    while dropped and all_dropped < most:
        dropped, _ = await scripts.drop_queued(source, what, count=min(DROPPED_A_CALL, most - all_dropped))
        all_dropped += dropped
    return all_dropped


async def count_queued(state: State, source: str) -> int:
    """Return how many requests of a source wait, wherever they do."""
    return (await state.shard_for(source).scripts.drop_queued(source, "purged", count=0)).left


async def forget_dropped(state: State, calls: int | None = None) -> None:
    """Give up the places of a shard's dropped requests in the seen filter: of all, or in so many calls.

    A seed for one of them is no duplicate then.
    """
    while calls is None or calls > 0:
        entries = await oldest_dropped(state, DROPPED_A_CALL)
        if not entries:
            return
        await state.scripts.forget_dropped(entries, [_digest(entry) for entry in entries])
        calls = None if calls is None else calls - 1


def _digest(entry: bytes) -> bytes | None:
    """Return the digest by which the seen filter has a stored request: that of its seed, before any redirect."""
    data = codec.peek(entry)
    meta: dict[str, Any] = data.get("meta", {})
    urls = meta.get("redirect_urls")
    url = urls[0] if isinstance(urls, list) and urls else data.get("url")
    identifier = name_in(meta)
    if not isinstance(url, str) or not isinstance(identifier, str):
        return None
    try:
        return digest_of(identifier, url)
    except UnicodeEncodeError:
        return None
