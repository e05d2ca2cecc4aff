"""Events in a file: each once, whatever happens to the one who writes them."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.state.client import State
from crawlproject.streams.readers import EventsLost
from tests.sinks.running import KEYS, before_line, ends_before, has_died, let_leases_end, run, trace
from tests.streams.records import records

TRACED = ("crawlproject/sinks/jsonlines.py", "crawlproject/streams/streams.py", "crawlproject/streams/readers.py")


def emit(client: redis.Redis, *numbers: int, stream: str = KEYS.image_events) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd(
                stream, {"event": json.dumps({"identifier": str(number), "title": "馬\n"}, ensure_ascii=False)}
            )
        pipe.execute()


async def drained(state: State, path: Path, name: str | None = None) -> EventFile:
    file = EventFile(path, state, name)
    async with file.opened():
        await file.drain()
    return file


def drain(client: redis.Redis, path: Path, **settings: str) -> int:
    """Append what is new; return the number of events that came into the file by that."""
    return run(client, lambda state: drained(state, path), **settings).written


def events(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def numbers(path: Path) -> list[int]:
    return [int(event["identifier"]) for event in events(path)]


def position_of(path: Path) -> Path:
    return path.with_name(path.name + ".position")


def test_each_event_is_a_line_that_names_its_stream(client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"
    emit(client, 1)
    emit(client, 2, stream=KEYS.link_rot_events)
    emit(client, 3, stream=KEYS.page_events)
    assert drain(client, path) == 3
    assert sorted(events(path), key=lambda event: str(event["identifier"])) == [
        {"event": "image_metadata_updates", "identifier": "1", "title": "馬\n"},
        {"event": "link_rot", "identifier": "2", "title": "馬\n"},
        {"event": "pages", "identifier": "3", "title": "馬\n"},
    ]


async def test_lines_are_on_disk_before_redis_has_their_position_and_the_file_beside_them_after(
    state: State, client: redis.Redis, tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EventFile(tmp_path / "events.jsonl", state)
    async with file.opened():
        note = file.streams.note

        async def noted(length: int = 0) -> None:
            await note(length)
            synced.append("Redis")

        monkeypatch.setattr(file.streams, "note", noted)
        synced.clear()
        emit(client, 1)
        await file.drain()
    assert synced == ["events.jsonl", "Redis", "events.jsonl.position.part", tmp_path.name]


@pytest.mark.parametrize("tail", [b'{"event":"image_meta', b'{"a": 1}\n{"b": 2}\n', b"\x00" * 4096])
def test_what_a_process_wrote_before_it_died_is_written_once(
    client: redis.Redis, tmp_path: Path, tail: bytes
) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, 1, 2)
    drain(client, path)
    before = position_of(path).read_bytes()
    emit(client, 3)
    drain(client, path)
    # the lines were on disk, perhaps not all of them, and the position was not
    position_of(path).write_bytes(before)
    with path.open("ab") as file:
        file.write(tail)
    emit(client, 4)
    assert drain(client, path) == 1 + 1  # Redis had noted the third
    assert numbers(path) == [1, 2, 3, 4]


async def test_one_process_writes_a_file_at_a_time(state: State, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, 1)
    (tmp_path / "link.jsonl").symlink_to(path)
    async with EventFile(path, state).opened():
        for name in ("events.jsonl", "link.jsonl"):
            with pytest.raises(CrawlprojectError, match="another scrapy events is writing to"):
                await drained(state, tmp_path / name)
    assert (await drained(state, path)).written == 1
    assert numbers(path) == [1]


def test_a_file_of_somebody_elses_is_left_alone(client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    emit(client, 1)
    with pytest.raises(CrawlprojectError, match="name another file"):
        drain(client, path)
    assert path.read_text() == "years of work"
    assert not position_of(path).exists()
    assert client.hlen(KEYS.readers) == 0


@pytest.mark.parametrize(
    ("lines", "position", "settings", "says"),
    [
        ('{"event":', None, {}, "bytes were written to it: restore it"),  # it lost some
        *((None, text, {}, "was not written by scrapy events") for text in ("", "{}", "null", '{"last": 5}')),
        (None, None, {"CRAWL_NAMESPACE": "other"}, "holds the events of another namespace"),
    ],
)
def test_a_file_that_has_become_another_is_refused_and_stays_as_it_is(
    client: redis.Redis,
    tmp_path: Path,
    lines: str | None,
    position: str | None,
    settings: dict[str, str],
    says: str,
) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, 1)
    drain(client, path)
    for file, text in ((path, lines), (position_of(path), position)):
        if text is not None:
            file.write_text(text)
    left = path.read_bytes()
    with pytest.raises(CrawlprojectError, match=says):
        drain(client, path, **settings)
    assert path.read_bytes() == left
    if not settings:  # the remedy that the message names
        path.unlink()
        position_of(path).unlink()
        assert drain(client, path) == 1


@pytest.mark.slow
def test_killed_at_any_line_it_goes_on_exactly_once(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    died, line, count = True, 0, 0
    while died:
        emit(client, count)
        died = has_died(redis_url, ends_before(TRACED, line, lambda own: drain(own, path)))
        let_leases_end(client)
        line += 1 + line // 10
        count += 1
        drain(client, path)
        assert numbers(path) == list(range(count))
    assert count > 20


def test_what_is_no_event_is_left_out_and_nothing_forges_a_line(client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, 1)
    for text in ('{"a":1}\n{"forged":1}', "", "[]", '"x"', "{", '{"event":"link_rot"}', "[" * 100_000, b"\xff"):
        client.xadd(KEYS.image_events, {"event": text})
    client.xadd(KEYS.image_events, {"other": "field"})
    client.xadd(KEYS.halted_events, {"event": '{"event":"crawl_resumed","source":"museum"}'})
    client.xadd(KEYS.image_events, {"event": '{"identifier":\n"2","title":"\u2028\x85\u202e"}'})
    file = run(client, lambda state: drained(state, path))
    assert file.skipped == 10
    assert numbers(path) == [1, 2]
    text = path.read_text()
    assert len(text.splitlines()) == text.count("\n") == 2
    assert "\u202e" not in text


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
async def test_a_file_that_is_taken_away_is_missed(
    state: State, client: redis.Redis, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, 1)
    await drained(state, path)
    kept = path.read_bytes()
    file = EventFile(path, state)
    async with file.opened():
        if how == "renamed":
            path.rename(tmp_path / "events.1")
        else:
            path.unlink()
        if how == "replaced":
            path.touch()
        emit(client, 2)
        with pytest.raises(CrawlprojectError, match="was removed, renamed or replaced"):
            await file.drain()
    if how == "renamed":
        (tmp_path / "events.1").rename(path)
    else:
        path.write_bytes(kept)
    assert (await drained(state, path)).written == 1
    assert numbers(path) == [1, 2]


def test_a_full_disk_is_reported_and_costs_no_event(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    emit(client, *range(50))
    drain(client, path)
    emit(client, *range(50, 500))

    def fill(own: redis.Redis) -> None:
        limit = path.stat().st_size + 1_234
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(OSError, match="File too large"):
            drain(own, path)

    assert not has_died(redis_url, fill)
    assert not path.read_bytes().endswith(b"\n")  # the torn line
    assert drain(client, path) == 450
    assert numbers(path) == list(range(500))


# Names, and the lease of a reader


def reader_of(path: Path) -> str:
    name = json.loads(position_of(path).read_text())["reader"]
    assert isinstance(name, str)
    return name


def stands(client: redis.Redis) -> set[str]:
    """Return the names of the readers for which events are kept."""
    return set(records(client, KEYS))


def test_files_of_equal_path_on_hosts_of_equal_name_are_two_readers(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, *range(30))
    folder = tmp_path / "data"
    assert drain(client, folder / "events.jsonl") == 30
    first = reader_of(folder / "events.jsonl")
    folder.rename(tmp_path / "elsewhere")
    assert drain(client, folder / "events.jsonl") == 30
    second = reader_of(folder / "events.jsonl")
    assert first != second
    assert stands(client) == {first, second}


def test_a_file_keeps_its_reader_on_another_host_and_in_another_place(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a1b2c3")
    emit(client, 1)
    (tmp_path / "volume").mkdir()
    drain(client, tmp_path / "volume" / "events.jsonl")
    (tmp_path / "volume").rename(tmp_path / "mounted")
    monkeypatch.setattr(socket, "gethostname", lambda: "d4e5f6")
    emit(client, 2)
    path = tmp_path / "mounted" / "events.jsonl"
    assert drain(client, path) == 1
    assert numbers(path) == [1, 2]
    assert stands(client) == {reader_of(path)}


def drain_as(client: redis.Redis, path: Path, name: str) -> list[str]:
    """Drain under a name; return the remarks."""
    return run(client, lambda state: drained(state, path, name)).remarks


def test_a_name_goes_on_in_a_new_file_and_back_in_the_old_one(client: redis.Redis, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    emit(client, 1, 2)
    assert drain_as(client, one, "archive") == []
    emit(client, 3)
    assert drain_as(client, two, "archive") == [
        "two continues after the events that reader archive has already written to other files"
    ]
    emit(client, 4)
    assert drain_as(client, one, "archive") == [
        "one continues after the events that reader archive has already written to other files"
    ]
    assert numbers(one) == [1, 2, 4]
    assert numbers(two) == [3]
    assert stands(client) == {"archive"}


def test_an_older_copy_of_a_file_is_completed_while_that_is_possible(client: redis.Redis, tmp_path: Path) -> None:
    path, copy = tmp_path / "events.jsonl", tmp_path / "copy.jsonl"
    emit(client, 1, 2)
    drain(client, path)
    for own, other in ((path, copy), (position_of(path), position_of(copy))):
        shutil.copy(own, other)
    emit(client, 3, 4)
    drain(client, path)
    assert "is an older copy: what reader" in drain_as(client, copy, reader_of(path))[0]
    assert numbers(copy) == numbers(path) == [1, 2, 3, 4]
    emit(client, 5)
    assert drain(client, path) == 1
    assert numbers(path) == [1, 2, 3, 4, 5]
    written = copy.read_bytes()
    emit(client, 6)
    drain(client, path)
    client.xtrim(KEYS.image_events, maxlen=1, approximate=False)
    with pytest.raises(EventsLost, match=r"^gone from Redis .*: an unknown number of events of "):
        drain(client, copy)
    assert copy.read_bytes() == written
    emit(client, 7)
    drain(client, path)
    assert numbers(path) == list(range(1, 8))


@pytest.mark.parametrize("reaches", [True, False])
async def test_a_note_whose_answer_is_lost_is_made_again(
    state: State, client: redis.Redis, tmp_path: Path, reaches: bool
) -> None:
    path = tmp_path / "events.jsonl"
    file = EventFile(path, state)
    emit(client, 1, 2)
    async with file.opened():
        lose_an_answer(file, reaches=reaches)
        with pytest.raises(redis.TimeoutError):
            await file.drain()
        emit(client, 3)
        assert await file.drain() == 3
    assert numbers(path) == [1, 2, 3]


def lose_an_answer(file: EventFile, *, reaches: bool = True) -> None:
    """Have the next note reach Redis, unless it is lost, too, but not its answer the reader."""
    note = file.streams.note

    async def noted(length: int = 0) -> None:
        file.streams.note = note  # type: ignore[method-assign]
        if reaches:
            await note(length)
        raise redis.TimeoutError("no answer")

    file.streams.note = noted  # type: ignore[method-assign]


async def test_what_was_noted_before_another_took_over_stays(
    state: State, client: redis.Redis, tmp_path: Path
) -> None:
    emit(client, 1, 2)
    file = EventFile(tmp_path / "one", state, "archive")
    async with file.opened():
        lose_an_answer(file)
        with pytest.raises(redis.TimeoutError):
            await file.drain()
        let_leases_end(client)
        emit(client, 3)
        await drained(state, tmp_path / "two", "archive")
        emit(client, 4)
        await file.drain()
    assert numbers(tmp_path / "one") == [1, 2, 4]
    assert numbers(tmp_path / "two") == [3]


async def test_what_was_noted_stays_though_another_took_over_before_the_answer(
    state: State, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit(client, 1, 2)
    file = EventFile(tmp_path / "one", state, "archive")
    async with file.opened():
        note = file.streams.note

        async def twice(length: int = 0) -> None:
            await note(length)
            let_leases_end(client)
            await drained(state, tmp_path / "two", "archive")
            await note(length)

        monkeypatch.setattr(file.streams, "note", twice)
        with pytest.raises(ReaderTaken):
            await file.drain()
    assert (numbers(tmp_path / "one"), numbers(tmp_path / "two")) == ([1, 2], [])


async def test_a_file_is_not_written_under_another_name(state: State, tmp_path: Path) -> None:
    await drained(state, tmp_path / "one", "archive")
    with pytest.raises(CrawlprojectError, match="is written by reader archive: leave out --reader, or"):
        await drained(state, tmp_path / "one", "daily")


@pytest.mark.slow
def test_hanging_at_any_line_while_another_takes_over_no_event_is_in_two_files(
    client: redis.Redis, tmp_path: Path
) -> None:
    hung, line, overtaken = True, 0, 0
    while hung:
        one, two = tmp_path / f"{line}-one", tmp_path / f"{line}-two"
        emit(client, 2 * line, 2 * line + 1)
        before = set(stands(client)) | {"archive"}
        hung, lost = drained_with_a_hang(client, one, two, line)
        overtaken += lost
        assert sorted(numbers(one) + numbers(two)) == [2 * line, 2 * line + 1]
        assert stands(client) <= before
        line += 1 + line // 10
    assert line > 80
    assert overtaken > 4


def drained_with_a_hang(client: redis.Redis, one: Path, two: Path, at_line: int) -> tuple[bool, bool]:
    """Drain into `one`, and before a line of that into `two`, as the same reader; tell whether that line came, and
    whether the former has noticed it.
    """
    others: list[list[str]] = []

    def take_over() -> None:
        let_leases_end(client)
        thread = threading.Thread(target=lambda: others.append(drain_as(client, two, "archive")))
        thread.start()
        thread.join()

    two.touch()
    lost = False
    trace(before_line(TRACED, at_line, take_over))
    try:
        drain_as(client, one, "archive")
    except ReaderTaken:
        lost = True
    finally:
        trace(None)
    return bool(others), lost
