"""From an entry of a stream to its event."""

from __future__ import annotations

import json
from typing import Any

from crawlproject.frontier.dead_letters import failed_event
from crawlproject.state.streams import EventEntry
from crawlproject.texts import one_line


def event_of(entry: EventEntry) -> dict[str, Any] | None:
    """Return the event of an entry, None if it is not one of ours."""
    text = entry.fields.get(b"event")
    if text is None:
        return failed_event(entry.id, entry.fields) if entry.name == "failed" else None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and data.get("event", entry.name) == entry.name else None


def json_of(entry: EventEntry, event: dict[str, Any]) -> bytes:
    """Return the JSON of an entry's event: as it stands in the stream, where it stands there."""
    return entry.fields.get(b"event") or one_line(event).encode()
