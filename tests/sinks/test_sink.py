"""Batches of events, as plug-ins take them, each at least once; and the event of an entry of a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from crawlproject.errors import ReaderTaken, StorageDown
from crawlproject.sinks.sink import BatchSink, event_of, json_of
from crawlproject.state.client import State
from crawlproject.streams.streams import EventEntry
from tests.streams.records import write


class Refusing(BatchSink):
    """Takes nothing the first time."""

    def __init__(self, state: State) -> None:
        super().__init__(state, "archive", "nowhere", lambda: False)
        self.offered: list[list[str]] = []

    async def take(self, events: Sequence[tuple[EventEntry, dict[str, Any]]]) -> bool:
        self.offered.append([event["identifier"] for _, event in events])
        if len(self.offered) == 1:
            raise StorageDown("away")
        return True


async def test_a_batch_that_was_not_taken_comes_again(state: State, client: redis.Redis) -> None:
    sink = Refusing(state)
    async with sink.opened():
        client.xadd(state.keys.image_events, {"event": '{"identifier": "a"}'})
        with pytest.raises(StorageDown):
            await sink.drain()
        assert await sink.drain() == 1
    assert sink.offered == [["a"], ["a"], []]


async def test_who_takes_the_lease_goes_on_behind_the_last_batch(state: State, client: redis.Redis) -> None:
    first, second = Refusing(state), Refusing(state)
    first.offered = second.offered = [[]]  # neither refuses anything
    async with first.opened():
        with pytest.raises(ReaderTaken, match="reader archive is being read by process"):
            async with second.opened():
                pass
        client.xadd(state.keys.image_events, {"event": '{"identifier": "a"}'})
        assert await first.drain() == 1
    async with second.opened():  # the lease was given back
        client.xadd(state.keys.image_events, {"event": '{"identifier": "b"}'})
        assert await second.drain() == 1
        write(client, "archive", state.keys, holder="another")
        with pytest.raises(ReaderTaken, match="was taken over by process"):
            await second.drain()
    assert [batch for batch in first.offered if batch] == [["a"], ["b"]]


def failed(**fields: bytes) -> EventEntry:
    return EventEntry("crawl:failed", "1700000000000-0", {name.encode(): value for name, value in fields.items()})


def test_an_invalid_seed_has_failed_and_is_shown_without_its_password() -> None:
    entry = failed(
        seed=b"http://me:S3CRET@a.org/1.jpg", reason=b"URL with a password", source=b"", spider=b"images"
    )
    event = event_of(entry)
    assert event is not None
    assert (event["identifier"], event["url"], event["source"]) == (None, None, None)
    assert (event["seed"], event["reason"]) == ("http://***@a.org/1.jpg", "URL with a password")
    assert (event["kind"], event["attempts"], event["spider"]) == (None, None, "images")
    assert json.loads(json_of(entry, event)) == event


def test_a_seed_that_was_refused_is_known_by_its_identifier() -> None:
    event = event_of(failed(seed=b'{"url": "http://a.org/1.jpg", "uuid": "one"}', reason=b"unknown source: x"))
    assert event is not None
    assert (event["identifier"], event["url"]) == ("one", "http://a.org/1.jpg")


def test_what_is_no_event_is_none() -> None:
    assert event_of(failed()) is None
    assert event_of(failed(entry=b"x")) is None
    assert event_of(failed(reason=b"x")) is None
    assert event_of(EventEntry("crawl:link_rot", "1-1", {b"entry": b"x", b"reason": b"x"})) is None
    assert event_of(EventEntry("crawl:link_rot", "1-1", {b"event": b'{"event": "pages"}'})) is None
    assert event_of(EventEntry("crawl:link_rot", "1-1", {b"event": b"["})) is None
