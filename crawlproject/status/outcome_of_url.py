"""What has become of a URL, as far as the streams in Redis still tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from crawlproject.frontier.dead_letters import read_dead_letter, time_of
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards, shown
from crawlproject.streams.streams import entries_back

MOST_ENTRIES = 100_000  # of each stream, the newest: about a second and 60 MB from Redis
MOST_BYTES = 64 * 2**20  # of the dead letters, each of which may hold a seed of a megabyte; or a page more
_EVENTS_A_PAGE = 1000
_DEAD_LETTERS_A_PAGE = 50
_WITHIN_S = 30.0  # that shards have to answer


class Ended(NamedTuple):
    """How a URL has ended: `outcome` is `image`, `probe`, `page`, `link_rot` or `dead_letter`; `time` is ISO 8601.

    `thumbnail` is a name in IMAGES_STORE, `status` that of the response, `reason` that of a dead letter; None
    where there is none. `extra` is that of the seed.
    """

    outcome: str
    time: str
    thumbnail: str | None = None
    status: int | None = None
    reason: str | None = None
    extra: dict[str, Any] | None = None


async def last_end(
    state: State, url: str, identifier: str | None, say: Callable[[str], None] = lambda _: None
) -> tuple[Ended | None, dict[str, str | None]]:
    """Return how `url` has ended last, if the newest entries tell, and since when each stream was looked at.

    With an `identifier`, only that seed counts. A stream without entries was looked at since None. A redirect may
    have led to another shard: each is looked at, for its part of `MOST_ENTRIES`. `say` is told of those that do
    not answer.
    """
    most = max(MOST_ENTRIES // state.count, 1)
    answers, away = await ask_shards(
        state.shards, lambda shard: _last_end(shard, url, identifier, most), within_s=_WITHIN_S
    )
    for shard, fault in away.items():
        say(f"{shown(shard)} does not answer ({fault}): whether a redirect ended there is not known")
    ends: list[Ended] = []
    since: dict[str, str | None] = {}
    for found, there in answers.values():
        ends += found
        for stream, oldest in there.items():  # all were looked at since the latest of them
            since[stream] = max(filter(None, (since.get(stream), oldest)), default=None)
    return max(ends, key=lambda one: one.time, default=None), since


async def _last_end(
    state: State, url: str, identifier: str | None, most: int
) -> tuple[list[Ended], dict[str, str | None]]:
    """Return the last end in each stream of a shard."""
    found: list[Ended] = []
    since: dict[str, str | None] = {}
    keys, needles = (
        state.keys,
        (url.encode(), json.dumps(url)[1:-1].encode()),
    )  # as in a stored request, and in JSON
    events = {keys.page_events: "page"} if keys.spider == "pages" else {keys.image_events: "image"}
    events |= {} if keys.spider == "pages" else {keys.probe_events: "probe"}
    for stream, outcome in {**events, keys.link_rot_events: "link_rot", keys.dead: "dead_letter"}.items():
        bounds = (MOST_BYTES, _DEAD_LETTERS_A_PAGE) if stream == keys.dead else (inf, _EVENTS_A_PAGE)
        oldest = hit = None
        async for page in entries_back(state, stream, most, *bounds):
            for at, fields in page:
                if hit is None and any(needle in value for value in fields.values() for needle in needles):
                    hit = _ended(outcome, at.decode(), fields, url, identifier)
            oldest = time_of(page[-1][0].decode())
            if hit is not None:
                found.append(hit)
                break
        since[stream.rpartition(":")[2]] = oldest
    return found, since


def _ended(outcome: str, at: str, fields: Mapping[bytes, bytes], url: str, identifier: str | None) -> Ended | None:
    """Return the end that an entry of a stream tells, if it is one of this URL."""
    said = read_dead_letter(at, dict(fields)) if outcome == "dead_letter" else json.loads(fields[b"event"])
    is_other = outcome != "page" and identifier not in {None, said.get("identifier")}
    if said.get("url") != url or is_other:
        return None
    of = {name: said.get(name) for name in ("thumbnail", "status", "reason", "extra")}
    return Ended(outcome, time_of(at), **of)
