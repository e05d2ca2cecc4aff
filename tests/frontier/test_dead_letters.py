"""Dead letters that we did not write."""

from __future__ import annotations

import json

import msgpack
import pytest

from crawlproject.frontier.dead_letters import failed_event, read_dead_letter


@pytest.mark.parametrize(
    "at", ["0-1", "1700000000000-0", "999999999999999-0", "18446744073709551615-18446744073709551615"]
)
def test_any_id_of_an_entry_is_a_time(at: str) -> None:
    time = read_dead_letter(at, {})["time"]
    assert "1970-01-01" <= time <= "9999-12-31T23:59:59.000+00:00"


@pytest.mark.parametrize(
    "entry", [b"", b"\x00", b"\x01\x00\x00\xc1", b"\xff" * 90, b"\x01\x00\x00\x93\x01\x02\x03"]
)
def test_what_is_no_request_has_neither_identifier_nor_url(entry: bytes) -> None:
    letter = read_dead_letter("1-1", {b"entry": entry, b"deliveries": b"many"})
    assert (letter["identifier"], letter["url"], letter["source"], letter["deliveries"]) == (None, None, None, 0)
    assert letter["reason"] == "not written by crawlproject"


def test_what_a_seed_kept_is_in_its_dead_letter() -> None:
    said = {"url": "http://a/", "extra": {"TEXT": "ž"}}
    assert read_dead_letter("1-1", {b"seed": json.dumps(said).encode()})["extra"] == {"TEXT": "ž"}
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"extra": {"TEXT": "ž"}}})
    assert read_dead_letter("1-1", {b"entry": entry})["extra"] == {"TEXT": "ž"}


@pytest.mark.parametrize("extra", [3, ["x"], {"a": b"\xff"}, {"a": float("nan")}, {"a": "x" * 3000}])
def test_what_no_seed_can_keep_is_not_shown(extra: object) -> None:
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"extra": extra}})
    assert read_dead_letter("1-1", {b"entry": entry})["extra"] is None


@pytest.mark.parametrize("mode", [5, True, "x", {"a": 1}, [], [["probe"]]])
def test_what_is_no_mode_is_that_of_no_failed_event(mode: object) -> None:
    entry = b"\x01\x00\x00" + msgpack.packb({"url": "http://a/", "meta": {"crawl_mode": mode}})
    event = failed_event("1-1", {b"entry": entry, b"reason": b"x"})
    assert event is not None
    assert event["url"] == "http://a/"
    assert True not in event.values()
