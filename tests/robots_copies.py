"""Shared copies of robots.txt, as tests want them."""

from __future__ import annotations

from typing import Any

import msgpack

from crawlproject.state.client import State

TOKEN = "worker 0"  # of the look-up that has fetched them


def unpacked(stored: bytes | None) -> dict[str, Any]:
    """Return a copy as Redis has it; an empty one if it has none."""
    return (
        {} if stored is None else {name.decode(): one for name, one in msgpack.unpackb(stored, raw=True).items()}
    )


def repacked(copy: dict[str, Any]) -> bytes:
    stored: bytes = msgpack.packb(copy, use_bin_type=False)
    return stored


async def copy_of(state: State, url: str) -> dict[str, Any]:
    redis: Any = state.redis
    return unpacked(await redis.get(state.keys.robots_of + url))


async def set_copy(state: State, url: str, **fields: Any) -> None:
    """Give fields of a copy other values."""
    await state.redis.set(state.keys.robots_of + url, repacked(await copy_of(state, url) | fields), px=3_600_000)


async def run_out(state: State, url: str) -> None:
    """Have a copy run out now."""
    seconds, micros = await state.redis.time()
    await set_copy(state, url, fresh=seconds * 1_000_000 + micros)


async def keep_copy(
    state: State, origin: str, source: str, *, kind: str = "rules", body: bytes = b"", **more: Any
) -> bool:
    """Keep a copy that was fetched for `source`; return whether that is visited less often from now on."""
    await set_copy(state, origin, token=TOKEN)
    times = {"ttl": 3600.0, "retry": 60.0, "retry_max": 3600.0}
    assert await state.scripts.keep_robots(TOKEN, origin, kind=kind, body=body, **(times | more))
    return (await state.scripts.look_robots(TOKEN, origin, source, fetches=False)).slower
