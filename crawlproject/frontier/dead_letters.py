"""Dead letters, in readable form; and the event `failed` that each of them is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from crawlproject import plugins
from crawlproject.errors import BadSeed
from crawlproject.frontier import codec
from crawlproject.frontier.seeds import parse_seed
from crawlproject.models import EXTRA, IDENTIFIER, MODE, SOURCE
from crawlproject.texts import shown_seed, without_userinfo

_LONGEST_SEED = 1_000  # characters of an event: it may be no seed at all
_LAST_TIME = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()


def read_dead_letter(at: str, fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the dead letter that an entry of the stream holds, in the words of the contract.

    Beside them `id`, that of the entry, and `raw`: the stored request and the seed as bytes, or None.
    """
    seed, entry, deliveries = fields.get(b"seed"), fields.get(b"entry"), fields.get(b"deliveries", b"")
    identifier = url = extra = None
    if entry is not None:
        data = codec.peek(codec.renewed(entry))
        meta = data.get("meta", {})
        identifier, url, extra = _text(meta.get(IDENTIFIER)), _text(data.get("url")), meta.get(EXTRA)
    elif seed is not None:
        try:
            parsed = parse_seed(seed)
            identifier, url, extra = parsed.identifier, parsed.url, parsed.extra
        except BadSeed:
            pass
    return {
        "id": at,
        "identifier": identifier,
        "url": url and without_userinfo(str(url)),
        "source": fields.get(b"source", b"").decode(errors="replace") or None,
        "reason": fields.get(b"reason", b"not written by crawlproject").decode(errors="replace"),
        "deliveries": int(deliveries) if deliveries.isdigit() and len(deliveries) < 10 else 0,
        "time": time_of(at),
        "image": _object(fields.get(b"image", b"")),
        "extra": None if extra is None or codec.extra_fault(extra) else extra,
        "seed": None if seed is None else shown_seed(seed.decode(errors="replace")),
        "raw": (entry, seed),
    }


def failed_event(at: str, fields: Mapping[bytes, bytes]) -> dict[str, Any] | None:
    """Return the event `failed`, key for key as in docs/events.md, of an entry of its stream; else None."""
    if b"reason" not in fields or not {b"entry", b"seed"} & fields.keys():
        return None
    letter = read_dead_letter(at, fields)
    entry, _ = letter["raw"]
    meta = {} if entry is None else codec.peek(entry).get("meta", {})
    mode, *_ = meta[MODE] if isinstance(meta.get(MODE), list) and meta[MODE] else (None,)
    fetch = _object(fields.get(b"fetch", b"")) or {}
    return {
        "event": "failed",
        "identifier": letter["identifier"],
        "url": letter["url"],
        "source": _text(meta.get(SOURCE)) or letter["source"],
        "spider": fields.get(b"spider", b"").decode(errors="replace") or None,
        "reason": letter["reason"],
        **{name: fetch.get(name) for name in ("kind", "status", "final_url", "redirects", "attempts", "fetch_s")},
        "time": letter["time"],
        "image": letter["image"],
        "extra": letter["extra"],
        **{name: name == mode for name in plugins.offered("modes")},
        "seed": letter["seed"] and letter["seed"][:_LONGEST_SEED],
    }


def time_of(at: str) -> str:
    """Return when an entry was written; one that others wrote may have any id, centuries ahead."""
    seconds = min(int(at.partition("-")[0]) / 1000, _LAST_TIME)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _object(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object of a dead letter, None if it is none."""
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
