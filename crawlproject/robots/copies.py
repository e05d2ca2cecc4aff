"""The copies of robots.txt that all workers share, in Redis."""

from __future__ import annotations

import zlib
from typing import Any

from crawlproject.state.client import State
from crawlproject.state.scripts import RobotsReply

_BATCH = 100  # copies a call


def packed(text: bytes) -> bytes:
    """Return the text of a robots.txt as it is stored.

    An ordinary one of 200 bytes takes 130 like that, its copy 300 bytes of Redis; a copy without a text 130.
    """
    return zlib.compress(text, 9)


async def look(state: State, token: str | None, origin: str, source: str, *, fetches: bool = True) -> RobotsReply:
    """Return the shared copy of an origin's robots.txt, with its text; see `SourceScripts.look_robots`."""
    reply = await state.scripts.look_robots(token, origin, source, fetches=fetches)
    return reply._replace(body=zlib.decompress(reply.body)) if reply.what == "rules" else reply


async def expire_copies(state: State, source: str) -> None:
    """Have each robots.txt that makes a source wait between requests fetched again; until then it holds.

    Where it redirects, so is what it leads to.
    """
    redis: Any = state.redis
    urls: list[bytes] = await redis.zrange(state.keys.robots_delays_of + source, 0, -1)
    seen = set(urls)
    while urls:
        batch, urls = urls[:_BATCH], urls[_BATCH:]
        targets = set(await state.scripts.expire_robots(batch)) - seen
        urls += targets
        seen |= targets
