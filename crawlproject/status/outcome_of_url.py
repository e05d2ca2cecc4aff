"""What has become of a URL, as far as the streams in Redis still tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from crawlproject.frontier.dead_letters import read_dead_letter, time_of
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, shown
from crawlproject.streams.newest import entries_back

MOST_ENTRIES = 100_000  # of each stream, the newest: about a second and 60 MB from Redis
MOST_BYTES = 64 * 2**20  # of the dead letters, each of which may hold a seed of a megabyte; or a page more
_EVENTS_A_PAGE = 1000
_DEAD_LETTERS_A_PAGE = 50
_WITHIN_S = 30.0  # that other shards have to answer


class Ended(NamedTuple):
    """How a URL has ended: `outcome` is `image`, `probe`, `page`, `link_rot` or `dead_letter`; `time` is ISO 8601.

    `thumbnail` is a name in IMAGES_STORE, `status` that of the response, `reason` that of a dead letter; None
    where there is none. `extra` is that of the seed. `found_in` is `events`, `dead letters` or `thumbnails`.
    """

    outcome: str
    time: str
    thumbnail: str | None = None
    status: int | None = None
    reason: str | None = None
    found_in: str = "events"
    extra: dict[str, Any] | None = None


async def last_end(
    state: State, url: str, identifier: str | None, say: Callable[[str], None] = lambda _: None
) -> tuple[Ended | None, dict[str, str | None]]:
    """Return how `url` has ended last, if the newest entries tell, and since when each stream was looked at.

    With an `identifier`, only that seed counts. A stream without entries was looked at since None. `state` is the
    shard of its source. Where a redirect has led to another source, it has ended in the shard of that: if this one
    does not tell, all do, each of its part of `MOST_ENTRIES`. `say` is told of those that do not answer.
    """
    ended, since = await _last_end(state, url, identifier, MOST_ENTRIES)
    if ended is not None or state.count == 1:
        return ended, since
    others = [shard for shard in state.shards if shard is not state]
    most = max(MOST_ENTRIES // state.count, 1)
    answers, away = await ask_shards(
        others, lambda shard: _last_end(shard, url, identifier, most), within_s=_WITHIN_S
    )
    for shard, fault in away.items():
        say(f"{shown(shard)} does not answer ({fault}): whether a redirect ended there is not known")
    ends = [one for one, _ in answers.values() if one is not None]
    for _, there in answers.values():
        for stream, oldest in there.items():  # all were looked at since the latest of them
            since[stream] = max(filter(None, (since.get(stream), oldest)), default=None)
    return max(ends, key=lambda one: one.time, default=None), since


async def _last_end(
    state: State, url: str, identifier: str | None, most_entries: int
) -> tuple[Ended | None, dict[str, str | None]]:
    """Do as `last_end`, of one shard."""
    found: list[Ended] = []
    since: dict[str, str | None] = {}
    is_page = state.keys.spider == "pages"
    images = ((state.keys.image_events, _image), (state.keys.probe_events, _probe))
    for stream, read, page_size, most_bytes in (
        *((*kept, _EVENTS_A_PAGE, inf) for kept in (((state.keys.page_events, _page),) if is_page else images)),
        (state.keys.link_rot_events, _link_rot, _EVENTS_A_PAGE, inf),
        (state.keys.dead, _dead_letter, _DEAD_LETTERS_A_PAGE, MOST_BYTES),
    ):
        name, oldest = stream.rpartition(":")[2], None
        needles = {url.encode(), json.dumps(url)[1:-1].encode()}  # as it is in a stored request, and in JSON
        hit = None
        async for page in entries_back(state, stream, most_entries, most_bytes, page_size):
            for at, fields in page:
                if hit is None and any(needle in value for value in fields.values() for needle in needles):
                    hit = read(at.decode(), fields, url, identifier)
            oldest = time_of(page[-1][0].decode())
            if hit is not None:
                break
        since[name] = oldest
        if hit is not None:
            found.append(hit)
    return max(found, key=lambda ended: ended.time, default=None), since


def _event(fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> dict[str, Any] | None:
    """Return the event of an entry, if it is one of this URL."""
    try:
        event = json.loads(fields.get(b"event", b""))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("url") != url:
        return None
    return event if identifier is None or event.get("identifier") == identifier else None


def _image(at: str, fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> Ended | None:
    event = _event(fields, url, identifier)
    if event is None:
        return None
    return Ended("image", time_of(at), _text(event.get("thumbnail")), _status(event), extra=_extra(event))


def _probe(at: str, fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> Ended | None:
    event = _event(fields, url, identifier)
    return None if event is None else Ended("probe", time_of(at), status=_status(event), extra=_extra(event))


def _page(at: str, fields: Mapping[bytes, bytes], url: str, _: str | None) -> Ended | None:
    event = _event(fields, url, None)
    return None if event is None else Ended("page", time_of(at), status=_status(event), extra=_extra(event))


def _link_rot(at: str, fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> Ended | None:
    event = _event(fields, url, identifier)
    return None if event is None else Ended("link_rot", time_of(at), status=_status(event), extra=_extra(event))


def _dead_letter(at: str, fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> Ended | None:
    letter = read_dead_letter(at, fields)
    if letter["url"] != url or identifier not in {None, letter["identifier"]}:
        return None
    return Ended(
        "dead_letter", letter["time"], reason=letter["reason"], found_in="dead letters", extra=letter["extra"]
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _extra(event: Mapping[str, Any]) -> dict[str, Any] | None:
    extra = event.get("extra")
    return extra if isinstance(extra, dict) else None


def _status(event: Mapping[str, Any]) -> int | None:
    status = event.get("status")
    return status if isinstance(status, int) else None
