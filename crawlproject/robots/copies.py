"""The copies of robots.txt that all workers share, in Redis."""

from __future__ import annotations

import zlib
from typing import Any, cast

import msgpack

from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.state.scripts import RobotsReply

_BATCH = 500  # keys a call


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
    keys, redis = state.keys, cast(Any, state.redis)
    seconds, micros = await redis.time()
    now = seconds * MICROS + micros
    urls: list[bytes] = await redis.zrange(keys.robots_delays_of + source, 0, -1)
    seen = set(urls)
    while urls:
        names, urls = [keys.robots_of.encode() + url for url in urls[:_BATCH]], urls[_BATCH:]
        stored: list[bytes | None] = await redis.mget(names)
        copies = {name: msgpack.unpackb(one, raw=True) for name, one in zip(names, stored, strict=True) if one}
        targets = [copy[b"body"] for copy in copies.values() if copy.get(b"kind") == b"redirect"]
        urls += [target for target in targets if target not in seen]
        seen.update(targets)
        async with redis.pipeline(transaction=False) as pipe:
            for name, copy in copies.items():
                run_out = msgpack.packb(copy | {b"fresh": min(copy.get(b"fresh", 0), now)}, use_bin_type=False)
                pipe.set(name, run_out, xx=True, keepttl=True)
            await pipe.execute()
