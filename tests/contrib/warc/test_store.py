"""The content store: groups, closing, outages, S3."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproject import config, runtime
from crawlproject.contrib.warc import index as warc_index
from crawlproject.contrib.warc import store as warc_store
from crawlproject.contrib.warc.records import Place
from crawlproject.contrib.warc.segments import OPEN, closed_segments, index_of
from crawlproject.contrib.warc.store import PageStore, check_page_store
from crawlproject.errors import ConfigError, StorageDown
from crawlproject.storage import blobs
from tests.contrib.warc.test_index import theirs
from tests.contrib.warc.warc_reading import all_records, at, exchange, segments, text
from tests.storage.s3_gate import Gate, aws, made_bucket
from tests.waiting import until_async


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PROBE_S", 0.05)
    monkeypatch.setattr(warc_store, "_LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(warc_store, "_SWEEP_EVERY_S", 0.1)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[PageStore]:
    """A store in a folder, closed in the end."""
    store = PageStore(Settings({"CRAWL_PAGES_STORE": str(folder)}))
    store.open()
    try:
        yield store
    finally:
        await store.close()


async def write(store: PageStore, *numbers: int) -> list[Place]:
    return await asyncio.gather(*(store.write(exchange(number)) for number in numbers))


def kept(folder: Path) -> list[bytes]:
    return [record.payload for record in all_records(folder) if record.kind == "response"]


# Groups


async def test_a_page_is_kept_only_when_it_is_synced(tmp_path: Path, synced: list[str]) -> None:
    async with opened(tmp_path) as store:
        await write(store, 1)
        synced.clear()
        [place] = await write(store, 2)
        assert synced == [f"{place.warc}.open"]


async def test_an_error_with_one_page_alone_leaves_the_others_of_its_group(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        broken = exchange(2, fetched_at=None)
        ends = await asyncio.gather(
            *(store.write(one) for one in (exchange(1), broken, exchange(3))), return_exceptions=True
        )
        assert isinstance(ends[1], AttributeError)
        assert not store.outage
    assert kept(tmp_path) == [text(1), text(3)]
    assert isinstance(ends[2], Place)
    assert at(tmp_path, ends[2]).payload == text(3)


# Closing


async def test_a_file_is_closed_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_store, "_SEGMENT_BYTES", 5000)
    async with opened(tmp_path) as store:
        for number in range(20):
            await write(store, number)
        assert len(segments(tmp_path)) >= 2
    sizes = [file.stat().st_size for file in segments(tmp_path)]
    assert all(5000 <= size < 10_000 for size in sizes[:-1])
    assert kept(tmp_path) == [text(number) for number in range(20)]


async def test_a_file_is_closed_at_its_age_though_no_page_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_store, "_SEGMENT_AGE_S", 0.2)
    async with opened(tmp_path) as store:
        await write(store, 1)
        await until_async(lambda: segments(tmp_path))
        assert kept(tmp_path) == [text(1)]
        await write(store, 2)
    assert len(segments(tmp_path)) == 2


async def test_closed_files_get_an_index_whoever_closed_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as dead:
        await write(dead, 1, 2)
        assert dead._segment
        dead._segment.leave()  # killed
        dead._segment = None
        async with opened(tmp_path) as store:
            await write(store, 3)
            await until_async(lambda: len(list(tmp_path.glob("*.cdxj"))) == 1)
    files = segments(tmp_path)
    assert len(files) == 2
    for file in files:
        assert (tmp_path / index_of(file.name)).read_bytes() == theirs([file])
    assert list((tmp_path / OPEN).iterdir()) == []


# Outages


async def until_up(store: PageStore) -> None:
    await until_async(lambda: not store.outage)


@pytest.mark.parametrize("what", ["gone", "empty"])
async def test_a_folder_that_vanishes_is_an_outage_until_it_is_back(tmp_path: Path, what: str) -> None:
    folder, away = tmp_path / "store", tmp_path / "away"
    async with opened(folder) as store:
        (first,) = await write(store, 1)
        folder.rename(away)
        if what == "empty":
            folder.mkdir()
        with pytest.raises(StorageDown, match=r"pages cannot be kept in .*/store \(FileNotFoundError"):
            await write(store, 2)
        with pytest.raises(StorageDown):
            await write(store, 3)
        if what == "empty":
            assert list(folder.iterdir()) == []
            folder.rmdir()
        away.rename(folder)
        await until_up(store)
        (second,) = await write(store, 4)
    assert at(folder, first).payload == text(1)
    assert at(folder, second).payload == text(4)
    assert {text(1), text(4)} <= set(kept(folder))


async def test_a_write_that_hangs_is_an_outage_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "_POLL_S", 0.05)
    release = threading.Event()
    fsync = os.fsync

    def hanging(file: int) -> None:
        release.wait(60)
        fsync(file)

    async with opened(tmp_path) as store:
        await write(store, 1)
        monkeypatch.setattr(os, "fsync", hanging)
        monkeypatch.setattr(blobs, "_TIMEOUT_S", 0.2)
        with pytest.raises(StorageDown, match=r"not done after 0\.2 s"):
            await write(store, 2)
        monkeypatch.setattr(blobs, "_TIMEOUT_S", 40.0)
        release.set()
        await until_up(store)
        await write(store, 3)
    assert kept(tmp_path) == [text(1), text(2), text(3)]  # the second will come again


# S3


class Bucket:
    """A bucket of its own behind a gate, and stores for it that share a spool."""

    def __init__(self, gate: Gate, spool: Path, name: str) -> None:
        self.gate, self.spool, self.name = gate, spool, name
        self.bucket = made_bucket(f"http://{gate.target}", name)

    def store(self) -> PageStore:
        settings = aws(self.gate.url)
        settings["CRAWL_PAGES_STORE"] = f"s3://{self.name}/crawl/"
        settings["CRAWL_PAGES_SPOOL"] = str(self.spool)
        return PageStore(settings)

    def opened(self) -> PageStore:
        store = self.store()
        store.open()
        return store

    def names(self, ending: str = ".warc.gz") -> list[str]:
        return sorted(entry.key for entry in self.bucket.objects.all() if entry.key.endswith(ending))

    def fetched(self, folder: Path) -> Path:
        """Return a folder with what is in the bucket."""
        folder.mkdir()
        for name in self.names():
            answer = self.bucket.Object(name).get()
            assert answer["ContentType"] == "application/warc"
            (folder / name.removeprefix("crawl/")).write_bytes(answer["Body"].read())
        return folder


@pytest.fixture
def bucket(gate: Gate, tmp_path: Path) -> Bucket:
    return Bucket(gate, tmp_path / "spool", f"pages-{os.urandom(4).hex()}")


async def test_closed_files_are_uploaded_and_removed_here(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_store, "_SEGMENT_BYTES", 5000)
    store = bucket.opened()
    places = []
    for number in range(12):
        places += await write(store, number)
    await until_async(bucket.names)  # while it runs
    await store.close(60)
    folder = bucket.fetched(tmp_path / "fetched")
    for number, place in enumerate(places):
        assert at(folder, place).payload == text(number)
    assert not [path for path in bucket.spool.rglob("*") if path.is_file()]
    assert bucket.names(".cdxj") == [f"crawl/{index_of(file.name)}" for file in segments(folder)]
    indices = [bucket.bucket.Object(name).get()["Body"].read() for name in bucket.names(".cdxj")]
    assert [line for index in indices for line in index.splitlines(keepends=True)] == [
        line for file in segments(folder) for line in theirs([file]).splitlines(keepends=True)
    ]


async def test_a_segment_that_cannot_be_indexed_is_uploaded_all_the_same(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warc_index, "_SORT_MEMORY", "none")
    store = bucket.store()
    await write(store, 1)
    await store.close(60)
    assert kept(bucket.fetched(tmp_path / "fetched")) == [text(1)]
    assert bucket.names(".cdxj") == []
    assert "is uploaded without an index (OSError: sort: " in caplog.text


@pytest.mark.parametrize("mode", [503, "drop"])
async def test_while_s3_is_down_pages_are_kept_here_and_uploaded_later(
    bucket: Bucket,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str | int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(warc_store, "_SEGMENT_BYTES", 1)
    store = bucket.opened()
    bucket.gate.mode = mode
    for number in range(3):
        await write(store, number)
    await until_async(lambda: "cannot be uploaded to s3://" in caplog.text)
    await write(store, 3)
    assert not store.outage
    assert "S3CRET" not in caplog.text
    bucket.gate.mode = "pass"
    await until_async(lambda: len(bucket.names()) >= 3)
    await until_async(lambda: "Uploading closed segments of pages in" in caplog.text)
    await store.close(60)
    assert sorted(kept(bucket.fetched(tmp_path / "fetched"))) == [text(number) for number in range(4)]
    assert caplog.text.count("cannot be uploaded to s3://") == 1


async def test_a_full_spool_is_an_outage_until_it_is_uploaded(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_store, "_SPOOL_BYTES", 20_000)
    store = bucket.opened()
    bucket.gate.mode = 503
    number = 0
    with pytest.raises(StorageDown, match=r"no more pages can be kept: .* wait to be uploaded from .* to s3://"):
        while True:
            await write(store, number)
            number += 1
            assert number < 100
    assert number > 5
    spool = sum(path.stat().st_size for path in bucket.spool.rglob("*.warc.gz*"))
    assert 20_000 <= spool < 25_000
    with pytest.raises(StorageDown):
        await write(store, 200)
    bucket.gate.mode = "pass"
    await until_up(store)
    await write(store, number)
    await store.close(60)
    found = kept(bucket.fetched(tmp_path / "fetched"))
    assert sorted(found) == sorted(text(n) for n in range(number + 1))


async def test_what_a_worker_could_not_upload_the_next_one_does(bucket: Bucket, tmp_path: Path) -> None:
    bucket.gate.mode = 503
    dead = bucket.store()
    await write(dead, 1)
    assert dead._segment
    dead._segment.leave()  # killed
    stopped = bucket.store()
    await write(stopped, 2)
    await stopped.close(0.1)
    assert len(closed_segments(stopped.folder)) >= 1
    bucket.gate.mode = "pass"
    next_one = bucket.store()
    next_one.open()
    await until_async(lambda: len(bucket.names()) == 2)
    await next_one.close(60)
    assert sorted(kept(bucket.fetched(tmp_path / "fetched"))) == [text(1), text(2)]


async def test_a_hanging_s3_delays_neither_pages_nor_the_stop(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_store, "_SEGMENT_BYTES", 1)
    store = bucket.opened()
    bucket.gate.mode = "hang"
    for number in range(3):
        await write(store, number)
    await until_async(lambda: bucket.gate.asked)
    await write(store, 3)
    await store.close(0.1)
    assert len(closed_segments(store.folder)) == 4
    bucket.gate.mode = "pass"
    assert store._sweeping is not None
    await asyncio.wait((store._sweeping,))


async def test_buckets_do_not_share_what_waits_in_a_spool(gate: Gate, tmp_path: Path) -> None:
    one, other = (Bucket(gate, tmp_path / "spool", f"pages-{os.urandom(4).hex()}") for _ in range(2))
    store = one.store()
    await write(store, 1)
    assert store._segment
    store._segment.leave()
    second = other.store()
    await write(second, 2)
    await second.close(60)
    assert len(other.names()) == 1
    assert one.names() == []


# Before the crawl


def test_the_store_is_tried_before_the_crawl(tmp_path: Path) -> None:
    check_page_store(Settings())
    check_page_store(Settings({"CRAWL_PAGES_STORE": str(tmp_path / "store")}))
    assert [path.name for path in (tmp_path / "store").rglob("*")] == [OPEN]
    config.load({"CRAWL_PAGES_LINKS": "warc", "CRAWL_PAGES_STORE": str(tmp_path / "store")})
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"CRAWL_PAGES_STORE=.*/file/store cannot be used: .*Not a directory"):
        check_page_store(Settings({"CRAWL_PAGES_STORE": str(tmp_path / "file" / "store")}))
