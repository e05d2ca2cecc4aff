"""Whether the workers of a crawl have the same settings, of those that bear on what all of them do."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from redis.exceptions import ResponseError

from crawlproject.config import Config
from crawlproject.state.client import State
from crawlproject.texts import printable, without_userinfo

_SHARED = (
    *("CRAWL_SOURCES", "CRAWL_UNKNOWN_SOURCES", "CRAWL_SOURCE_TRUST", "CRAWL_EXCLUDE", "CRAWL_CONTACT"),
    *("CRAWL_HEARTBEAT_TIMEOUT", "CRAWL_FRONTIER_HIGH_WATER", "CRAWL_OVERFLOW_"),
    *(
        "CRAWL_STREAM_MAXLEN",
        "CRAWL_EVENTS_UNREAD",
        "CRAWL_CIRCUIT_",
        "CRAWL_STRAIN",
        "CRAWL_SEEN_",
    ),
    *("CRAWL_PAGES_BUDGET", "CRAWL_PAGES_DELAY", "CRAWL_ROBOTS_", "CRAWL_OPT_OUTS"),
    *("IMAGES_STORE", "CRAWL_KEEP_ORIGINALS", "DOWNLOAD_MAXSIZE", "CRAWL_MAX_PIXELS", "CRAWL_THUMBNAIL_"),
)  # also the beginnings of names


def _shared_settings(config: Config) -> dict[str, str]:
    """Return the value of each, without what may be secret in a URL."""
    return {
        f.metadata["name"]: without_userinfo(str(getattr(config, f.name))).partition("?")[0]
        for f in fields(config)
        if f.metadata["name"].startswith(_SHARED)
    }


async def disagreements(state: State) -> list[str]:
    """Note the settings of a worker that has joined; return how they differ from those of the workers there.

    Of each setting, one difference is told. What workers noted that have gone is forgotten.
    """
    redis: Any = state.redis
    own, found = _shared_settings(state.config), dict[str, str]()
    try:
        await redis.hset(state.keys.worker_settings, state.worker_id, json.dumps(own))
        members = set(await redis.zrange(state.keys.workers, 0, -1))
        for worker, noted in (await redis.hgetall(state.keys.worker_settings)).items():
            if worker not in members:
                await redis.hdel(state.keys.worker_settings, worker)
                continue
            for name, value in json.loads(noted).items():
                if value != own.get(name, value):
                    here, there = printable(own[name], 200), printable(str(value), 200)
                    theirs = f"{there} at worker {printable(worker.decode(), 200)}"
                    found[name] = f"{name} is {here} here, and {theirs}: give all workers the same value"
    except (ResponseError, ValueError, AttributeError) as error:  # written by others, or Redis is full
        return [f"{state.keys.worker_settings} cannot be used, so settings are not compared: {error}"]
    return list(found.values())
