"""JSON-LD: what a page says about its images, audio and video, by schema.org."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from crawlproject.pages.document import Document

_TYPE = "application/ld+json"
_MOST_SCRIPTS = 20
_MOST_VALUES = 10_000  # of a script that are looked at
_KINDS = {"ImageObject": "image", "Photograph": "image", "AudioObject": "audio", "VideoObject": "video"}
_LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class MediaObject:
    """An `image`, `audio` or `video`, as JSON-LD describes it; all but `kind` and `url` may be None."""

    kind: str
    url: str
    licence: str | None
    title: str | None
    creator: str | None
    content_type: str | None


def linked_data(document: Document) -> tuple[list[MediaObject], list[str]]:
    """Return what the page's JSON-LD describes, and the licences that it names of anything but images."""
    objects: list[MediaObject] = []
    licences: list[str] = []
    scripts = (node for node in document.of("script") if (node.get("type") or "").lower() == _TYPE)
    for node in islice(scripts, _MOST_SCRIPTS):
        for thing in _things(node.text or ""):
            licence = _address(thing.get("license"))
            kind = next((_KINDS[name] for name in _texts(thing.get("@type")) if name in _KINDS), "")
            if kind != "image" and licence:
                licences.append(licence)
            url = _address(thing.get("contentUrl"))
            if kind == "image":
                url = url or _address(thing.get("url"))  # of others that is their page
            if kind and url:
                title = _text(thing.get("name")) or _text(thing.get("caption")) or _text(thing.get("headline"))
                creator = (
                    _name(thing.get("creator")) or _name(thing.get("author")) or _text(thing.get("creditText"))
                )
                content_type = _text(thing.get("encodingFormat"))
                objects.append(MediaObject(kind, url, licence, title, creator, content_type))
    return objects, licences


def _things(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a script, at any depth, in order."""
    try:
        waiting = [json.loads(text, strict=False)]
    except (ValueError, RecursionError):  # no JSON, numbers of thousands of digits; a thousand brackets deep
        return
    seen = 0
    while waiting and seen < _MOST_VALUES:
        value = waiting.pop()
        seen += 1
        if isinstance(value, dict):
            yield value
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value[:_MOST_VALUES]))


def _texts(value: Any) -> list[str]:
    """Return one text or several, without the namespace of schema.org."""
    values = value if isinstance(value, list) else [value]
    return [one.rpartition("/")[2].removeprefix("schema:") for one in values[:20] if isinstance(one, str)]


def _address(value: Any) -> str | None:
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, dict):
        value = value.get("@id") or value.get("url")
    return value.strip() if isinstance(value, str) and value.strip() else None


def _text(value: Any) -> str | None:
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, str):
        return None
    whole = value[:_LONGEST_TEXT].encode(errors="replace").decode()  # JSON may have half a surrogate pair
    return " ".join(whole.split()) or None


def _name(value: Any) -> str | None:
    value = value[0] if isinstance(value, list) and value else value
    return _text(value.get("name")) if isinstance(value, dict) else _text(value)
