"""From an entry of a stream to its event."""

from __future__ import annotations

import json
import re
from typing import Any

from crawlproject.frontier.dead_letters import failed_event
from crawlproject.state.client import State
from crawlproject.streams.streams import EventEntry
from crawlproject.texts import one_line

_LONGEST_NAME = 80  # characters of the file's name in that of its reader


def default_name(state: State, name: str, identity: str) -> str:
    """Return the name of the reader of a file that was given none; its id tells files of equal name apart."""
    whole = f"{state.config.namespace}-{state.keys.spider}-{name[:_LONGEST_NAME]}-{identity}"
    return re.sub(r"[^A-Za-z0-9._-]", "-", whole)


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
