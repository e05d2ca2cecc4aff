"""Events as rows of a table: one schema for all of them, which stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from crawlproject.models import OF_FOUND
from crawlproject.texts import one_line

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("identifier", pa.string()),
        ("url", pa.string()),
        ("final_url", pa.string()),
        ("source", _DICTIONARY),
        ("format", _DICTIONARY),
        ("content_type", _DICTIONARY),
        ("status", _DICTIONARY),
        ("http_status", pa.int16()),
        ("reason", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("thumbnail_width", pa.int32()),
        ("thumbnail_height", pa.int32()),
        ("filesize", pa.int64()),
        ("compression_quality", pa.int8()),
        ("sha256", pa.binary(32)),
        ("thumbnail", pa.string()),
        ("original", pa.string()),
        ("etag", pa.string()),
        ("last_modified", pa.string()),
        ("tls_failure", pa.string()),
        ("fetch_ms", pa.int32()),
        ("attempts", pa.int32()),
        ("at", pa.timestamp("ms", tz="UTC")),
        ("opt_out", pa.list_(pa.string())),
        ("exif", pa.string()),
        ("extra", pa.string()),
        ("analysis", pa.string()),
    ]
)
# Of events of pages, under their own names
PAGES = pa.schema(
    [
        ("event", _DICTIONARY),
        ("url", pa.string()),
        ("source", _DICTIONARY),
        ("status", pa.int16()),
        ("statuses", pa.list_(pa.int16())),
        ("final_url", pa.string()),
        ("redirects", pa.int16()),
        ("attempts", pa.int32()),
        ("fetch_s", pa.float64()),
        ("content_type", _DICTIONARY),
        ("size", pa.int64()),
        ("wire_size", pa.int64()),
        ("digest", pa.string()),
        ("title", pa.string()),
        ("language", _DICTIONARY),
        ("licence", _DICTIONARY),
        ("links", pa.int32()),
        ("images", pa.int32()),
        ("depth", pa.int16()),
        ("fetched_at", pa.timestamp("ms", tz="UTC")),
        ("record", pa.string()),
        ("revisit", _DICTIONARY),
        ("found_on", pa.string()),
        ("discovered_at", pa.timestamp("ms", tz="UTC")),
        ("outlinks", pa.list_(pa.struct([(name, pa.string()) for name in ("url", "text", "rel")]))),
        ("spider", _DICTIONARY),
        ("kind", _DICTIONARY),
        ("reason", pa.string()),
        ("extra", pa.string()),
    ]
)
UNCHANGED = "unchanged"
STATUSES: Mapping[str, str] = {
    "image_metadata_updates": "ok",
    "image_probes": "probed",  # or unchanged
    "link_rot": "gone",
    "failed": "failed",
}
_AS_IN_EVENT = frozenset(SCHEMA.names) - {
    *("source", "status", "http_status", "sha256", "fetch_ms", "at", "exif", "extra", "analysis")
}
_FACTS = ("width", "height", "filesize", "compression_quality", "format", "sha256", "exif")


def row_of(name: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an event, by the names of the columns; `name` is that of its stream."""
    row: dict[str, Any] = {column: event.get(column) for column in _AS_IN_EVENT}
    facts = event
    if name == "failed":
        known = event.get("image")
        facts = known if isinstance(known, dict) else {}
        row |= {column: facts.get(column) for column in _FACTS}
    row["source"] = event.get("source")
    row["status"] = UNCHANGED if event.get("revisit") == UNCHANGED else STATUSES[name]
    row["http_status"] = event.get("status")
    row["sha256"] = _bytes(facts.get("sha256"))
    took = event.get("fetch_s")
    row["fetch_ms"] = round(took * 1000) if isinstance(took, (int, float)) and 0 <= took < 1e6 else None
    stored = event.get("thumbnails")
    if isinstance(stored, list) and stored and isinstance(stored[0], dict):
        row |= {f"thumbnail_{side}": stored[0].get(side) for side in ("width", "height")}
    row["at"] = _moment(event.get("fetched_at") or event.get("time"))
    row["exif"] = "{}" if facts.get("exif") == {} else _json(facts.get("exif"))
    row["extra"] = _json(_extra(event))
    row["analysis"] = _json(event.get("analysis"))
    return row


def page_row_of(name: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an event of the spider `pages`, by the names of the columns of `PAGES`."""
    return {column: event.get(column) for column in PAGES.names} | {
        "event": name,
        "fetched_at": _moment(event.get("fetched_at") or event.get("time")),
        "discovered_at": _moment(event.get("discovered_at")),
        "record": _json(event.get("record")),
        "extra": _json(event.get("extra")),
    }


KINDS: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}


def kept_columns(text: str, more: Collection[str] = ()) -> dict[str, pa.DataType]:
    """Return the columns in `similarity:double,license`, with their types; `more` are in the dataset besides ours.

    Raises:
        ValueError: it cannot be read so, or a dataset has such a column; the message says why.

    """
    found: dict[str, pa.DataType] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, kind = part.rpartition(":") if ":" in part else (part, "", "string")
        if not name or kind not in KINDS:
            raise ValueError(f"{part!r:.80}: expected NAME, or NAME:TYPE with one of {', '.join(KINDS)}")
        if name.lower() in {*SCHEMA.names, *more} or name in found:
            raise ValueError(f"{name}: a dataset has a column of that name: take another name")
        found[name] = KINDS[kind]
    return found


def kept_of(event: Mapping[str, Any], kept: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """Return the columns of what was fed beside the seed."""
    fed = event.get("extra")
    values = fed if isinstance(fed, dict) else {}
    return {
        name: _text(values.get(name)) if kind == pa.string() else values.get(name) for name, kind in kept.items()
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else one_line(value)


def _extra(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else is known: columns that were fed with the seed, what the page says, the line of the seed."""
    fed = event.get("extra")
    found = {name: event[name] for name in (*OF_FOUND, "seed") if event.get(name)}
    return found | fed if isinstance(fed, dict) else found


def _json(value: Any) -> str | None:
    return one_line(value) if value else None


def _bytes(value: Any) -> bytes | None:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        return None


def _moment(value: Any) -> int | None:
    """Return the milliseconds since 1970 of a time in ISO 8601 with offset."""
    try:
        moment = datetime.fromisoformat(value)
        return None if moment.tzinfo is None else round(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column; with null for each value that is not of its type, as others may have written it."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([value if _fits(value, kind) else None for value in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
