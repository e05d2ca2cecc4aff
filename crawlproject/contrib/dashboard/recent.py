"""Recent events: the newest entries of the event streams and of the dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from crawlproject.frontier.dead_letters import read_dead_letter
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards
from crawlproject.streams.streams import RawEntry, entries_back, newest_entries
from crawlproject.texts import printable

_MOST = {"thumbnails": 24, "link_rot": 40, "halts": 40, "dead": 40}  # rows
_MOST_LINK_ROT = 200  # read, of all spiders
_MOST_BYTES, _A_PAGE = 2**20, 8  # of dead letters a look, each of which may hold a seed of a megabyte
_LONGEST = 2000  # characters of a text
_ORDERS = {
    "crawl_excluded": "excluded",
    "crawl_included": "included",
    "queue_purged": "purged",
}  # in the audit trail


async def read_recent(state: State) -> dict[str, list[dict[str, Any]]]:
    """Return the newest `thumbnails`, `link_rot`, `dead` and `halts` of all shards that answer, the newest first.

    Link rot and dead letters are those of the state's spider. Among the halts are resumptions, exclusions, and
    queues that were emptied.
    """
    found, _ = await ask_shards(state.shards, _recent_of_shard)
    return {
        name: sorted(
            (event for one in found.values() for event in one[name]),
            key=lambda event: str(event.get("time") or event.get("fetched_at")),
            reverse=True,
        )[:most]
        for name, most in _MOST.items()
    }


async def _recent_of_shard(state: State) -> dict[str, list[dict[str, Any]]]:
    keys = state.keys
    tables = dict.fromkeys((keys.halted_events, keys.resumed_events, keys.audit), 40)
    most = {keys.image_events: _MOST["thumbnails"], keys.link_rot_events: _MOST_LINK_ROT}
    found = await newest_entries(state, {**most, **tables})
    images, gone, halted, resumed, audit = map(_events, found.values())
    gone = [event for event in gone if event.get("spider", "images") == keys.spider]
    halts = [{**event, "event": "halted"} for event in halted] + [
        {**event, "event": "resumed"} for event in resumed
    ]
    halts += [{**event, "event": _ORDERS[event["event"]]} for event in audit if event["event"] in _ORDERS]
    dead = [
        read_dead_letter(at.decode(), fields)
        async for page in entries_back(state, keys.dead, _MOST["dead"], _MOST_BYTES, _A_PAGE)
        for at, fields in page
    ]
    return {
        "thumbnails": _shown(images, "identifier", "url", "source", "thumbnail", "width", "height", "fetched_at"),
        "link_rot": _shown(gone, "identifier", "url", "source", "status", "time"),
        "halts": _shown(halts, "event", "source", "type", "msg", "reason", "by", "time"),
        "dead": _shown(dead, "identifier", "url", "source", "reason", "deliveries", "time", "seed"),
    }


def _events(entries: Iterable[RawEntry]) -> list[dict[str, Any]]:
    return [json.loads(fields[b"event"]) for _, fields in entries]


def _shown(events: Iterable[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Return these fields of events: their numbers, and their texts as they can be shown."""
    return [
        {
            name: printable(value, _LONGEST)
            if isinstance(value, str)
            else value
            if isinstance(value, int)
            else None
            for name in names
            for value in [event.get(name)]
        }
        for event in events
    ]
