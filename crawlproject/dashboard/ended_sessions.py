"""Sessions of the dashboard that were ended before their time, by logging out."""

from __future__ import annotations

import time

from crawlproject.state.client import State


async def end_session(state: State, session: str, expires: float) -> None:
    """Remember that a session has ended, until `expires` (Unix time, s)."""
    ended = state.keys.ended_sessions
    await state.redis.zadd(ended, {session: expires})
    await state.redis.zremrangebyscore(ended, "-inf", time.time())


async def has_ended(state: State, session: str) -> bool:
    """Tell whether a session was ended."""
    return await state.redis.zscore(state.keys.ended_sessions, session) is not None
