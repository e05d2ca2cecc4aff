"""Recent events: the newest entries of the event streams and of the dead letters."""

from __future__ import annotations

import json
from typing import Any

from crawlproject.state.client import State
from crawlproject.state.newest_entries import RawEntry, newest_entries
from crawlproject.status.dead_letters import read_dead_letter
from crawlproject.texts import printable

_THUMBNAILS, _ROWS = 24, 40
_LONGEST = 2000  # characters of a text
_EVENT = b"event"


async def recent(state: State) -> dict[str, Any]:
    """Return the newest `thumbnails`, `link_rot`, `dead` and `halts` (and resumptions), the newest first."""
    keys = state.keys
    tables = (keys.link_rot_events, keys.halted_events, keys.resumed_events, keys.dead)
    found = await newest_entries(state, {keys.image_events: _THUMBNAILS, **dict.fromkeys(tables, _ROWS)})
    images, gone, halted, resumed, dead = found.values()
    shown = ("source", "type", "msg", "reason", "by", "time")
    halts = [{"event": "halted", **event} for event in _events(halted, *shown)]
    halts += [{"event": "resumed", **event} for event in _events(resumed, *shown)]
    return {
        "thumbnails": _events(images, "identifier", "url", "source", "thumbnail", "width", "height", "fetched_at"),
        "link_rot": _events(gone, "identifier", "url", "source", "status", "time"),
        "halts": sorted(halts, key=lambda event: str(event["time"]), reverse=True)[:_ROWS],
        "dead": [_dead_letter(at, fields) for at, fields in dead],
    }


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
