"""Recent events: the newest entries of the event streams and of the dead letters."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from typing import Any

from crawlproject.frontier.dead_letters import read_dead_letter
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards
from crawlproject.streams.newest import RawEntry, entries_after, newest_entries
from crawlproject.texts import printable

_THUMBNAILS, _ROWS = 24, 40
_LONGEST = 2000  # characters of a text
_EVENT = b"event"
_ORDERS = {
    "crawl_excluded": "excluded",
    "crawl_included": "included",
    "queue_purged": "purged",
}  # in the audit trail


class Recent:
    """Reads what came lately, of all shards that answer."""

    def __init__(self, state: State) -> None:
        self._shards = {shard: _RecentOfShard(shard) for shard in state.shards}

    async def look(self) -> dict[str, Any]:
        """Return the newest `thumbnails`, `link_rot`, `dead` and `halts`, the newest first.

        Among the halts are resumptions, exclusions, and queues that were emptied.
        """
        found, _ = await ask_shards(self._shards, lambda shard: self._shards[shard].look())
        if len(self._shards) == 1:
            return next(iter(found.values()))
        return {
            name: sorted(
                (event for one in found.values() for event in one[name]),
                key=lambda event: str(event.get("time") or event.get("fetched_at")),
                reverse=True,
            )[:most]
            for name, most in {"thumbnails": _THUMBNAILS, "link_rot": _ROWS, "halts": _ROWS, "dead": _ROWS}.items()
        }


class _RecentOfShard:
    """The same of one. A dead letter may hold a seed of a megabyte: each is read once, not at each look."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._dead: dict[bytes, dict[str, Any]] = {}  # those of the last look by their ids, the newest first
        self._length = 0  # of their stream then
        self._looking = asyncio.Lock()  # two pages may open at once

    async def look(self) -> dict[str, Any]:
        """Return what `Recent.look` does, of this shard."""
        keys = self.state.keys
        tables = (keys.link_rot_events, keys.halted_events, keys.resumed_events, keys.audit)
        found = await newest_entries(self.state, {keys.image_events: _THUMBNAILS, **dict.fromkeys(tables, _ROWS)})
        images, gone, halted, resumed, audit = found.values()
        shown = ("source", "type", "msg", "reason", "by", "time")
        halts = [{"event": "halted", **event} for event in _events(halted, *shown)]
        halts += [{"event": "resumed", **event} for event in _events(resumed, *shown)]
        told = ((event, _ORDERS.get(str(event["event"]))) for event in _events(audit, "event", *shown))
        halts += [{**event, "event": what} for event, what in told if what is not None]
        return {
            "thumbnails": _events(
                images, "identifier", "url", "source", "thumbnail", "width", "height", "fetched_at"
            ),
            "link_rot": _events(gone, "identifier", "url", "source", "status", "time"),
            "halts": sorted(halts, key=lambda event: str(event["time"]), reverse=True)[:_ROWS],
            "dead": await self._dead_letters(),
        }

    async def _dead_letters(self) -> list[dict[str, Any]]:
        """Return the newest dead letters, reading those that came since the last look; all, if some are gone."""
        stream = self.state.keys.dead
        async with self._looking:
            newest = next(iter(self._dead), None)
            length, entries = await entries_after(self.state, stream, newest, _ROWS)
            if length < self._length + len(entries):  # dropped, or retried
                self._dead = {}
                length, entries = await entries_after(self.state, stream, None, _ROWS)
            letters = {at: _dead_letter(at, fields) for at, fields in entries} | self._dead
            self._dead, self._length = dict(islice(letters.items(), _ROWS)), length
            return list(self._dead.values())


def _events(entries: list[RawEntry], *names: str) -> list[dict[str, Any]]:
    found = []
    for _, fields in entries:
        try:
            event = json.loads(fields.get(_EVENT, b""))
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append({name: _shown(event.get(name)) for name in names})
    return found


def _dead_letter(at: bytes, fields: dict[bytes, bytes]) -> dict[str, Any]:
    letter = read_dead_letter(at.decode(), fields)
    names = ("identifier", "url", "source", "reason", "deliveries", "time", "seed")
    return {name: _shown(letter[name]) for name in names}


def _shown(value: Any) -> Any:
    return printable(value, _LONGEST) if isinstance(value, str) else value if isinstance(value, int) else None
