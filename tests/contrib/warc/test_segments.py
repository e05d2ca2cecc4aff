"""Segments: what is in them when a process dies, and who looks after them then."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproject.contrib.warc import records as warc
from crawlproject.contrib.warc import segments as warc_segments
from crawlproject.contrib.warc import store as warc_store
from crawlproject.contrib.warc.records import Place, warcinfo
from crawlproject.contrib.warc.segments import (
    OPEN,
    Segment,
    closed_segment,
    closed_segments,
    make_folder,
    size_of,
    take_over,
)
from crawlproject.contrib.warc.store import PageStore
from tests.contrib.warc.warc_reading import all_records, at, by_cdxj, by_fastwarc, exchange, segments, text
from tests.sinks.running import ends_before, has_died


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "store")
    return tmp_path / "store"


def info() -> bytes:
    return warcinfo("a", {"software": "x"})[1]


def members(*numbers: int) -> bytes:
    return b"".join(b"".join(warc.members(exchange(number), "<urn:uuid:1>")) for number in numbers)


def begun(folder: Path, *numbers: int) -> Segment:
    """Return an open segment with these pages."""
    segment = Segment(folder)
    segment.append(info())
    for number in numbers:
        segment.append(members(number))
    return segment


def open_files(folder: Path) -> list[Path]:
    return sorted((folder / OPEN).iterdir())


def test_a_segment_is_locked_before_a_sweep_can_find_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, found = fcntl.flock, []

    def late(file: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:  # the maker's
            found.extend([*take_over(folder), closed_segments(folder)])
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    segment = begun(folder, 1)
    assert found == [[]]
    assert list(take_over(folder)) == []
    segment.close()
    assert closed_segments(folder) == [segment.name]


# Processes that died

TAILS = {
    "a byte of a record": members(3)[:1],
    "half a record": members(3)[:200],
    "a wrong sum": warc.members(exchange(3), "<urn:uuid:1>")[0][:-8] + bytes(8),
    "zeros": bytes(5000),  # as a lost block of the disk leaves
    "a head": b"\x1f\x8b\x08\x00junk",
    "noise": os.urandom(70_000),
}


@pytest.mark.parametrize("tail", TAILS)
def test_what_is_no_whole_record_is_cut_off_and_the_rest_stays(folder: Path, tail: str) -> None:
    segment = begun(folder, 1, 2)
    with open_files(folder)[0].open("ab") as file:
        file.write(TAILS[tail])
    segment.leave()
    (taken,) = take_over(folder)
    assert (taken.name, taken.size, taken.cut) == (segment.name, segment.size, len(TAILS[tail]))
    assert [record.payload for record in all_records(folder) if record.kind == "response"] == [text(1), text(2)]
    assert list(take_over(folder)) == []


@pytest.mark.parametrize("pages", [[], [1]], ids=["nothing", "half a page"])
def test_a_segment_of_a_dead_process_without_a_page_is_removed(folder: Path, pages: list[int]) -> None:
    segment = begun(folder)
    with open_files(folder)[0].open("ab") as file:
        file.write(members(*pages)[:100])
    segment.leave()
    (taken,) = take_over(folder)
    assert taken.size == 0
    assert segments(folder) == open_files(folder) == []


def test_a_closed_segment_is_locked_by_one_at_a_time(folder: Path) -> None:
    segment = begun(folder, 1)
    segment.close()
    with closed_segment(folder, segment.name) as ours:
        assert ours == folder / segment.name
        with closed_segment(folder, segment.name) as theirs:
            assert theirs is None
        ours.unlink()
    with closed_segment(folder, segment.name) as gone:
        assert gone is None


def test_files_of_others_are_not_touched(folder: Path) -> None:
    for name in ("notes.open", "a.warc.gz.open", "pages-1.warc.gz.open"):
        (folder / OPEN / name).write_bytes(b"mine")
    (folder / "other.warc.gz").write_bytes(b"mine")
    assert list(take_over(folder)) == []
    assert len(open_files(folder)) == 3
    assert closed_segments(folder) == []
    assert size_of(folder) == 0


# Faults


def test_a_write_that_fails_half_way_leaves_no_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = begun(folder, 1)
    pwrite = os.pwrite
    left = [100]

    def full(file: int, data: bytes, offset: int) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return pwrite(file, data[: left.pop()], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            segment.append(members(2))
    segment.leave()
    (taken,) = take_over(folder)
    assert (taken.size, taken.cut) == (segment.size, 100)
    assert [record.payload for record in all_records(folder) if record.kind == "response"] == [text(1)]


# Kills


TRACED = ("crawlproject/contrib/warc/segments.py", "crawlproject/contrib/warc/store.py")


async def keep(folder: Path, told: Path, numbers: range) -> None:
    """Keep pages, and write a line into a file for each that is acknowledged."""
    store = PageStore(Settings({"CRAWL_PAGES_STORE": str(folder)}))
    store.open()

    async def one(number: int) -> None:
        place = await store.write(exchange(number))
        with told.open("a") as file:
            file.write(f"{number} {place.warc} {place.offset} {place.length}\n")

    await asyncio.gather(*map(one, numbers))
    await store.close()


def judge(folder: Path, kept: dict[int, Place]) -> None:
    """Every page that was acknowledged can be read, by its place and by three readers, and no record is half."""
    list(take_over(folder))
    # Of a worker that died before it had locked its segment, an empty file stays.
    assert [file for file in open_files(folder) if file.suffix != ".new" or file.stat().st_size] == []
    for number, place in kept.items():
        record = at(folder, place)
        assert (record.kind, record.payload) == ("response", text(number))
    read: set[bytes] = set()
    for file in segments(folder):
        records = by_fastwarc(file)
        assert records[0].kind == "warcinfo"
        assert records[0].named["WARC-Filename"] == file.name
        assert [record.kind for record in records].count("warcinfo") == 1
        read |= {record.payload for record in records if record.kind == "response"}
        for line in by_cdxj(file):
            number = int(line["url"].rpartition("/")[2])
            place = Place(line["filename"], int(line["offset"]), int(line["length"]))
            assert kept.get(number, place) == place
            assert at(folder, place).payload == text(number)
    assert len(list(all_records(folder))) == sum(1 for file in segments(folder) for _ in by_fastwarc(file))
    assert {text(number) for number in kept} <= read


@pytest.mark.slow
def test_a_worker_killed_at_any_line_loses_nothing_it_acknowledged(
    folder: Path, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_store, "_SEGMENT_BYTES", 30_000)  # a few groups
    told = tmp_path / "told"
    line, first, died = 0, 0, True
    while died:
        numbers = range(first, first + 20)
        monkeypatch.setattr(warc_segments, "_PROCESS", os.urandom(6).hex())  # a fork draws none of its own
        act = ends_before(TRACED, line, lambda _, numbers=numbers: asyncio.run(keep(folder, told, numbers)))  # type: ignore[misc]
        died = has_died(redis_url, act)
        first += 20
        line += 1 + line // 4
    assert line > 100
    kept = {int(number): Place(warc, int(at), int(size)) for number, warc, at, size in map(str.split, told.open())}
    assert {*range(first - 20, first)} <= kept.keys()
    judge(folder, kept)
