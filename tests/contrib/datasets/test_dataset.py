"""Events in Parquet files: each image one row, whatever happens to the one who writes them."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import redis

from crawlproject.contrib.datasets import parquet
from crawlproject.contrib.datasets.dataset import ABOUT, Dataset
from crawlproject.contrib.datasets.event_rows import PAGES, SCHEMA
from crawlproject.contrib.datasets.parquet import FOOTER, PagesForm, ParquetForm
from crawlproject.contrib.datasets.parts import FolderParts
from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.state.client import State
from crawlproject.streams import readers as streams
from crawlproject.streams.readers import readers
from tests.conftest import ROOT
from tests.sinks.events import KEYS, dead_letter, emit, gone, image
from tests.sinks.running import ends_before, has_died, let_leases_end, run
from tests.streams.records import write
from tests.waiting import until_async

TRACED = (
    "crawlproject/contrib/datasets/dataset.py",
    "crawlproject/contrib/datasets/parquet.py",
    "crawlproject/contrib/datasets/parts.py",
    "crawlproject/streams/readers.py",
)


def dataset(state: State, folder: Path, rows: int = 4, name: str | None = None, **more: Any) -> Dataset:
    parts = FolderParts(folder)
    return Dataset(state, parts, ParquetForm(parts, rows), **({"every": 600.0, "name": name} | more))


async def drained(state: State, folder: Path, rows: int = 4, name: str | None = None) -> int:
    """Write what there is, and return the number of events."""
    one = dataset(state, folder, rows, name)
    async with one.opened():
        await one.drain()
        await one.commit()
    return one.written


def drain(client: redis.Redis, folder: Path, rows: int = 4, name: str | None = None) -> int:
    return run(client, lambda state: drained(state, folder, rows, name))


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def by_duckdb(query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the images in all parts, as two readers of Parquet see them."""
    if not parts(folder):
        return []
    found = [pq.read_table(path, columns=["identifier"])["identifier"].to_pylist() for path in parts(folder)]
    [(count, different)] = by_duckdb(f"select count(*), count(distinct identifier) from '{folder}/*.parquet'")
    identifiers = [name for part in found for name in part]
    assert (count, different) == (len(identifiers), len(set(identifiers)))
    return sorted(int(name.partition(".")[2]) for name in identifiers)


def test_thumbnails_smaller_than_the_square_are_counted(client: redis.Redis, tmp_path: Path) -> None:
    async def smaller(state: State) -> list[int]:
        found = []
        for square in (1, 2):
            one = dataset(state, tmp_path / str(square))
            one.square = square
            async with one.opened():
                await one.drain()
            found.append(one.smaller)
        return found

    emit(client, [0, 2, 5])  # the thumbnail of the first, the only one, is 1 x 2
    assert run(client, smaller) == [0, 1]


def test_each_event_is_a_row_of_one_schema(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, [0, 2, 5])
    assert drain(client, tmp_path / "out") == 3
    [path] = parts(tmp_path / "out")
    assert path.name == "00000000.parquet"
    assert pq.read_schema(path).equals(SCHEMA)
    rows = {row["status"]: row for row in pq.read_table(path).to_pylist()}
    at = datetime(2026, 11, 22, 6, 44, 34, 200_000, UTC)
    expected = dict.fromkeys(SCHEMA.names)
    assert rows["ok"] == expected | {
        "identifier": "id.0", "url": "http://a.org/0.jpg", "final_url": "http://b.org/0.jpg", "source": "museum",
        "format": "JPEG", "content_type": "image/jpeg", "status": "ok", "http_status": 200, "width": 1600,
        "height": 1200, "filesize": 100_000, "compression_quality": 88,
        "sha256": bytes.fromhex(image(0)["sha256"]), "thumbnail": "ab/id.0.jpg", "thumbnail_width": 1,
        "thumbnail_height": 2, "fetch_ms": 288, "attempts": 1, "at": at, "opt_out": ["noai"],
        "exif": '{"0x13b":"Ansel"}',
        "extra": '{"licence":"https://creativecommons.org/licenses/by/4.0/","alt":"馬 0"}',
    }  # fmt: skip
    assert rows["gone"] == expected | {
        "identifier": "id.2", "url": "http://a.org/2.jpg", "final_url": "http://a.org/2.jpg", "source": "museum",
        "status": "gone", "http_status": 410, "attempts": 2, "at": at,
    }  # fmt: skip
    failed = rows["failed"]
    assert abs((failed.pop("at") - datetime.now(UTC)).total_seconds()) < 600
    del expected["at"]
    assert failed == expected | {
        "identifier": "id.5", "url": "http://a.org/5.jpg", "source": "museum", "status": "failed",
        "http_status": 503, "reason": "status 503 (after 3 attempts)", "attempts": 3, "fetch_ms": 1500,
    }  # fmt: skip


def test_each_event_of_a_page_is_a_row_under_the_names_of_the_event(client: redis.Redis, tmp_path: Path) -> None:
    link = {"url": "http://b.org/", "text": "馬", "rel": "nofollow"}
    page = {
        "event": "pages", "url": "http://a.org/", "source": "a.org", "status": 200, "statuses": [301, 200],
        "size": 2**33, "title": "A page", "depth": "far", "fetched_at": "2026-11-22T06:44:34.200+00:00",
        "discovered_at": "2026-11-22T06:44:33+00:00", "record": {"warc": "x"}, "outlinks": [link],
    }  # fmt: skip
    client.xadd(KEYS.page_events, {"event": json.dumps(page)})
    for spider in ("pages", "images"):
        client.xadd(KEYS.link_rot_events, {"event": json.dumps(gone(1, spider=spider))})
        client.xadd(KEYS.failed_events, dead_letter(2, spider=spider))  # type: ignore[arg-type]
    emit(client, [0])

    async def written(state: State) -> int:
        one = Dataset(state, FolderParts(tmp_path), PagesForm(FolderParts(tmp_path), 9), every=600.0)
        async with one.opened():
            await one.drain()
            await one.finish()
        return one.written

    assert run(client, written) == 3
    [path] = parts(tmp_path)
    assert pq.read_schema(path).equals(PAGES)
    rows = {row["event"]: row for row in pq.read_table(path).to_pylist()}
    moment = datetime(2026, 11, 22, 6, 44, 34, 200_000, UTC)
    assert rows["pages"] == dict.fromkeys(PAGES.names) | page | {
        "depth": None, "fetched_at": moment, "discovered_at": moment.replace(second=33, microsecond=0),
        "record": '{"warc":"x"}',
    }  # fmt: skip
    assert (rows["link_rot"]["status"], rows["link_rot"]["fetched_at"]) == (410, moment)
    assert (rows["failed"]["kind"], rows["failed"]["reason"]) == ("http_5xx", "status 503 (after 3 attempts)")


def test_a_probe_is_a_row_that_says_what_is_known(client: redis.Redis, tmp_path: Path) -> None:
    known = {
        "event": "image_probes",
        "etag": '"1"',
        "last_modified": "Sun, 22 Nov 2026 10:30:00 GMT",
        "revisit": None,
    }
    for more in ({"exif": {}, "status": 206}, {"exif": None, "revisit": "changed"}, {"revisit": "unchanged"}):
        one = {name: value for name, value in image(0).items() if name not in {"thumbnail", "sha256", "exif"}}
        client.xadd(KEYS.probe_events, {"event": json.dumps(one | known | more)})
    drain(client, tmp_path)
    rows = pq.read_table(parts(tmp_path)[0]).to_pylist()
    assert [(row["status"], row["exif"], row["sha256"]) for row in rows] == [
        ("probed", "{}", None),
        ("probed", None, None),
        ("unchanged", None, None),
    ]
    assert {(row["etag"], row["last_modified"]) for row in rows} == {(known["etag"], known["last_modified"])}
    assert (rows[0]["http_status"], rows[0]["width"]) == (206, 1600)


async def test_what_is_of_another_spider_or_is_no_event_is_no_row(
    state: State, client: redis.Redis, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    client.xadd(KEYS.link_rot_events, {"event": json.dumps(gone(1, spider="pages"))})
    client.xadd(KEYS.page_events, {"event": '{"event": "pages"}'})
    client.xadd(KEYS.image_events, {"event": "{"})
    one = dataset(state, out)
    async with one.opened():
        assert await one.drain() == 0
        await one.commit()
        assert not parts(out)
        # it holds nothing of that up, and nothing that it does not read
        [reader] = await readers(state)
        assert (reader.behind, set(reader.positions)) == (
            0,
            {KEYS.image_events, KEYS.probe_events, KEYS.link_rot_events, KEYS.failed_events},
        )
    assert one.skipped == 1


def test_values_of_other_types_are_null_and_stop_nothing(client: redis.Redis, tmp_path: Path) -> None:
    wrong = {
        "width": 2**40, "height": "x", "sha256": "zz", "opt_out": [1], "fetch_s": "x", "fetched_at": "yesterday",
        "exif": [1], "final_url": "\ud800", "compression_quality": 1e9, "source": {"a": 1}, "thumbnail": 3,
        "identifier": None, "status": [], "filesize": True, "alt": 5, "thumbnails": "x",
    }  # fmt: skip
    client.xadd(KEYS.image_events, {"event": json.dumps(image(0))})
    client.xadd(KEYS.image_events, {"event": json.dumps(image(1, **wrong))})
    client.xadd(KEYS.image_events, {"event": json.dumps({"event": "image_metadata_updates"})})
    assert drain(client, tmp_path) == 3
    first, second, third = pq.read_table(parts(tmp_path)[0]).to_pylist()
    assert first["width"] == 1600
    left = {name for name, value in second.items() if value is not None}
    assert left <= {"url", "format", "content_type", "status", "attempts", "exif", "extra", "filesize"}
    assert {name for name, value in third.items() if value is not None} == {"status"}


def test_parts_are_full_and_go_on_where_the_last_ended(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 3)
    emit(client, range(10))
    drain(client, tmp_path)
    assert [pq.read_metadata(path).num_rows for path in parts(tmp_path)] == [4, 4, 2]
    emit(client, range(10, 13))
    drain(client, tmp_path)
    assert [path.name for path in parts(tmp_path)] == [f"{number:08d}.parquet" for number in range(4)]
    assert numbers(tmp_path) == list(range(13))
    assert drain(client, tmp_path) == 0
    assert len(parts(tmp_path)) == 4


def test_a_name_goes_on_in_a_new_dataset(client: redis.Redis, tmp_path: Path) -> None:
    for number in range(2):
        emit(client, range(3 * number, 3 * number + 3))
        drain(client, tmp_path / str(number), name="archive")
        assert numbers(tmp_path / str(number)) == list(range(3 * number, 3 * number + 3))


def test_the_footer_alone_says_how_far_it_is(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, range(8))
    drain(client, tmp_path)
    footer = json.loads(pq.read_metadata(parts(tmp_path)[-1]).metadata[FOOTER])
    db: Any = client
    newest = {
        stream: at.decode()
        for stream in footer["last"]
        for at, _ in db.xrevrange(stream, count=1) or [(b"0-0", {})]
    }
    assert (footer["last"], footer["number"], footer["rows"]) == (newest, 1, 4)
    client.delete(KEYS.readers)  # Redis has forgotten
    emit(client, range(8, 10))
    drain(client, tmp_path)
    assert numbers(tmp_path) == list(range(10))


def test_without_its_newest_part_it_does_not_go_on(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, range(8))
    drain(client, tmp_path)
    newest = parts(tmp_path)[-1]
    content = newest.read_bytes()
    newest.unlink()
    with pytest.raises(CrawlprojectError, match=r"lacks 00000001\.parquet.* restore it"):
        drain(client, tmp_path)
    newest.write_bytes(content)
    assert drain(client, tmp_path) == 0


async def test_a_part_appears_when_its_oldest_row_is_old_enough(
    state: State, client: redis.Redis, tmp_path: Path
) -> None:
    one = dataset(state, tmp_path, rows=100, every=0.5)
    async with one.opened():
        emit(client, range(3))
        await one.drain()
        assert not parts(tmp_path)

        async def has_appeared() -> bool:
            await one.drain(0.1)
            return bool(parts(tmp_path))

        await until_async(has_appeared)
    assert numbers(tmp_path) == [0, 1, 2]


async def test_what_is_in_no_part_is_kept_by_redis(state: State, client: redis.Redis, tmp_path: Path) -> None:
    one = dataset(state, tmp_path, rows=100)
    emit(client, range(3))
    async with one.opened():
        await one.drain()
        [reader] = await readers(state)
        assert reader.behind == 3
        await one.commit()
        [reader] = await readers(state)
        assert reader.behind == 0


@pytest.mark.slow
def test_killed_at_any_step_it_goes_on_exactly_once(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    line, number, died = 0, 0, True
    while died:
        emit(client, range(number, number + 5))
        number += 5
        died = has_died(redis_url, ends_before(TRACED, line, lambda own: drain(own, tmp_path)))
        let_leases_end(client)
        line += 1 + line // 8
    drain(client, tmp_path)
    assert numbers(tmp_path) == list(range(number))
    assert line > 150


async def test_one_process_writes_a_folder_at_a_time(state: State, client: redis.Redis, tmp_path: Path) -> None:
    async with dataset(state, tmp_path).opened():
        with pytest.raises(CrawlprojectError, match="another scrapy events is writing to"):
            await drained(state, tmp_path)


@pytest.mark.parametrize(
    ("parts_of_others", "says"), [(1, "by another process meanwhile"), (0, "was taken over by")]
)
async def test_who_was_overtaken_puts_no_part(
    state: State, client: redis.Redis, tmp_path: Path, parts_of_others: int, says: str
) -> None:
    emit(client, range(3))
    one = dataset(state, tmp_path)
    async with one.opened():
        await one.drain()
        if parts_of_others:
            (tmp_path / "00000000.parquet").write_text("another's")
        else:
            write(client, one.streams.name, KEYS, holder="another")
        with pytest.raises(ReaderTaken, match=says):
            await one.commit()
    assert [path.read_text() for path in parts(tmp_path)] == ["another's"] * parts_of_others


async def test_where_it_goes_on_is_looked_up_when_it_has_the_lease(
    state: State, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_RENEW_S", 600.0)  # the first one hangs, but for its commit
    monkeypatch.setattr(streams, "_LOOK_S", 2.0)

    class Unlocked(FolderParts):
        @contextmanager
        def opened(self) -> Iterator[None]:
            self.folder.mkdir(exist_ok=True)
            yield

    def unlocked() -> Dataset:
        parts = Unlocked(tmp_path)
        return Dataset(state, parts, ParquetForm(parts, 9), every=600)

    async def write_the_rest() -> None:
        async with second.opened():
            await second.drain()
            await second.commit()

    emit(client, range(3))
    first, second = unlocked(), unlocked()
    async with first.opened():
        await first.drain()
        writing = asyncio.create_task(write_the_rest())
        await asyncio.sleep(0.5)  # it waits for the lease
        await first.commit()
        assert not writing.done()
        emit(client, range(3, 5))
        write(client, first.streams.name, KEYS, until=1)  # as if this process hung
        await writing
    assert numbers(tmp_path) == list(range(5))


def test_a_full_disk_ends_it_with_a_sentence_and_loses_nothing(
    redis_url: str, client: redis.Redis, tmp_path: Path
) -> None:
    emit(client, range(400))

    def fill(own: redis.Redis) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        with pytest.raises(CrawlprojectError, match="make room"):
            drain(own, tmp_path, rows=400)

    assert not has_died(redis_url, fill)
    let_leases_end(client)
    drain(client, tmp_path, rows=400)
    assert numbers(tmp_path) == list(range(400))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"has 00000000\.parquet, but no _dataset\.json"),
        ("{", "was not written by scrapy events"),
        (
            '{"id": "a", "reader": "b", "format": "webdataset", "namespace": "crawl"}',
            "begun with format webdataset, not",
        ),
        (
            '{"id": "a", "reader": "b", "format": "parquet", "namespace": "x"}',
            "begun with namespace x, not with namespace crawl",
        ),
    ],
)
def test_the_dataset_of_others_is_left_alone(
    client: redis.Redis, tmp_path: Path, content: str | None, says: str
) -> None:
    emit(client, range(3))
    drain(client, tmp_path)
    about = tmp_path / ABOUT
    about.unlink() if content is None else about.write_text(content)
    with pytest.raises(CrawlprojectError, match=says):
        drain(client, tmp_path)
    assert len(parts(tmp_path)) == 1


@pytest.mark.parametrize("content", [b"", b"PAR1PAR1", b"x" * 99])
def test_a_newest_part_that_is_no_parquet_is_told(client: redis.Redis, tmp_path: Path, content: bytes) -> None:
    emit(client, range(3))
    drain(client, tmp_path)
    (tmp_path / "00000007.parquet").write_bytes(content)
    with pytest.raises(CrawlprojectError, match=r"00000007\.parquet in .* was not written by scrapy events"):
        drain(client, tmp_path)


def test_the_query_of_the_docs_joins_and_counts_each_picture_once(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [query] = re.findall(
        r"```sql\n(.*?);\n```", (ROOT / "crawlproject/contrib/datasets/README.md").read_text(), re.DOTALL
    )
    same = image(0)["sha256"]
    for number, source in enumerate(("museum", "museum", "museum", "photos")):
        event = image(number, source=source, **({"sha256": same} if number == 1 else {}))
        client.xadd(KEYS.image_events, {"event": json.dumps(event)})
    client.xadd(KEYS.link_rot_events, {"event": json.dumps(gone(2, time="2026-11-23T00:00:00.000+00:00"))})
    drain(client, tmp_path / "out")
    (tmp_path / "seeds.csv").write_text("uuid,caption\n" + "".join(f"id.{number},x\n" for number in range(4)))
    monkeypatch.chdir(tmp_path)
    assert sorted(by_duckdb(query)) == [("museum", 2, 1), ("photos", 1, 1)]
