"""Indices of WARC files: what they have is what cdxj-indexer finds; merged, and searched."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cdxj_indexer.main import CDXJIndexer

from crawlproject.contrib.warc import index as warc_index
from crawlproject.contrib.warc.index import Index, merge_indices, write_index
from crawlproject.contrib.warc.records import Earlier, Exchange, head, members, payload_digest, warcinfo
from crawlproject.contrib.warc.segments import index_of
from crawlproject.contrib.warc.stored_pages import read
from crawlproject.contrib.warc.url_keys import url_key
from crawlproject.errors import CrawlprojectError
from crawlproject.storage.blobs import Folder
from crawlproject.storage.s3 import S3Storage
from tests.contrib.warc.warc_reading import STARTED, exchange, segments, text
from tests.storage.s3_gate import Gate, aws, made_bucket

LATER = STARTED + timedelta(days=1)
_EARLIER = Earlier(STARTED, payload_digest(text(1)))

PAGES = {
    "page": exchange(1),
    "the same later": exchange(1, fetched_at=LATER, earlier=_EARLIER),
    "not modified": exchange(
        1, b"", fetched_at=LATER + timedelta(days=1), earlier=_EARLIER, not_modified=True,
        response_head=head(b"HTTP/1.1 304 Not Modified", [(b"ETag", b'"1"')]),
    ),
    "address with a query": exchange(2, url="https://www.museum.example:8443/A/?b=%C3%A4&a=1"),
    "without a type": exchange(3, response_head=head(b"HTTP/1.1 404 Not Found", [])),
    "odd type": exchange(4, response_head=head(b"HTTP/1.0 200", [(b"content-type", b" Text/HTML ;x")])),
    "empty type": exchange(5, response_head=head(b"HTTP/1.1 200 OK", [(b"Content-Type", b"")])),
    "empty body": exchange(6, b""),
    "large body": exchange(7, os.urandom(1_500_000)),
    "long head": exchange(8, response_head=head(
        b"HTTP/1.1 200 OK", [*((b"X-%d" % n, b"x" * 4000) for n in range(60)), (b"Content-Type", b"text/plain")]
    )),
    "links": exchange(10, metadata=b"outlink: http://a.example/ {}\r\n"),
    "no http": exchange(9, response_head=b"hello\r\n\r\n"),
}  # fmt: skip


def segment(folder: Path, number: int, exchanges: Sequence[Exchange]) -> Path:
    """Write a closed segment with these pages, without an index."""
    file = folder / f"pages-20261122103000-{number:05}-worker-{number:012x}.warc.gz"
    info, first = warcinfo(file.name, {"software": "x"})
    file.write_bytes(first + b"".join(b"".join(members(one, info)) for one in exchanges))
    return file


def theirs(files: Sequence[Path]) -> bytes:
    """Return the sorted index that cdxj-indexer makes."""
    out = io.StringIO()
    CDXJIndexer(output=out, inputs=[str(file) for file in files], sort=True).process_all()
    return out.getvalue().encode()


def merge(folder: Path) -> dict[str, int]:
    said: list[str] = []
    counts = merge_indices(Folder(folder), said.append)
    assert not said
    return counts


def test_an_index_is_that_of_cdxj_indexer(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, list(PAGES.values()))
    assert write_index(file, tmp_path / "a") == file.stat().st_size
    assert (tmp_path / "a").read_bytes() == theirs([file])


def test_indices_are_merged_and_again_the_same(tmp_path: Path) -> None:
    files = [segment(tmp_path, n, [exchange(i) for i in range(n, 60, 7)]) for n in range(1, 8)]
    assert merge(tmp_path) == {"files": 7, "indexed": 7}
    first = (tmp_path / "index.cdxj").read_bytes()
    assert first == theirs(files)
    assert merge(tmp_path) == {"files": 7, "indexed": 0}
    assert (tmp_path / "index.cdxj").read_bytes() == first
    files[0].unlink()
    assert merge(tmp_path)["files"] == 6
    assert (tmp_path / "index.cdxj").read_bytes() == theirs(files[1:])
    assert {path.name for path in tmp_path.iterdir()} - {path.name for path in files} - {
        index_of(path.name) for path in files
    } == {"index.cdxj", "index.json"}


def test_a_damaged_segment_is_indexed_up_to_the_damage(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, [exchange(1), exchange(2)])
    whole = file.stat().st_size
    with file.open("ab") as stream:
        stream.write(b"\x1f\x8b\x08torn")
    said: list[str] = []
    merge_indices(Folder(tmp_path), said.append)
    assert len((tmp_path / "index.cdxj").read_bytes().splitlines()) == 2
    assert said == [f"{file.name} is damaged from byte {whole} on: its index ends there"]


def test_a_merge_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(tmp_path, 1, [exchange(1)])
    merge(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(warc_index, "_SORT_MEMORY", "none")
    with pytest.raises(OSError, match="sort"):
        merge_indices(Folder(tmp_path), print)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# Searches


class Counting(Folder):
    """Counts what is read."""

    reads = 0

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads += 1
        return super().read(name, offset, length)


def line(url: str, number: int) -> str:
    place = {"length": "10", "offset": str(number), "filename": "a.warc.gz"}
    return f"{url_key(url)} 20261122103000 {json.dumps({'url': url, 'mime': 'text/html', **place})}\n"


def merged(folder: Path, lines: Iterable[str]) -> Counting:
    """Have these lines be the index of a store."""
    size = (folder / "index.cdxj").write_text("".join(lines))
    (folder / "index.json").write_text(json.dumps({"bytes": size, "files": ["a.warc.gz"]}))
    return Counting(folder)


@pytest.mark.parametrize("block", [64, 1000, 65_536])
def test_every_url_of_an_index_is_found_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(warc_index, "_BLOCK", block)
    pick = random.Random(3)
    urls = [f"http://museum.example/{n}{'x' * pick.choice([0, 1, 30, 3000])}" for n in range(0, 300, 2)]
    lines = sorted([line(url, n) for n, url in enumerate(urls)] + [line(urls[7], n) for n in range(1000, 1400)])
    index = Index(merged(tmp_path, lines))
    for number, url in enumerate(urls):
        expected = {number} | (set(range(1000, 1400)) if number == 7 else set())
        found = index.entries(url)
        assert {int(entry["offset"]) for entry in found} == expected
        assert {entry["url"] for entry in found} == {url}
    for absent in ("http://museum.example/1", "http://a.example/", "http://z.zzz/", "http://museum.example/0y"):
        assert index.entries(absent) == []


def test_a_search_reads_little_of_a_large_index(tmp_path: Path) -> None:
    store = merged(tmp_path, (line(f"http://museum.example/{n:07}", n) for n in range(50_000)))
    index = Index(store)
    assert [int(entry["offset"]) for entry in index.entries("http://museum.example/0023456")] == [23456]
    assert store.reads < 20


def test_what_is_not_merged_yet_is_found(tmp_path: Path) -> None:
    segment(tmp_path, 1, [exchange(1)])
    merge(tmp_path)
    second = segment(tmp_path, 2, [exchange(2), replace(exchange(1), fetched_at=LATER)])
    write_index(second, tmp_path / index_of(second.name))
    third = segment(tmp_path, 3, [exchange(3)])
    index = Index(Folder(tmp_path))
    assert [entry["filename"] for entry in index.entries(exchange(1).url)] == [
        file.name for file in segments(tmp_path)
    ][:2]
    assert index.unindexed == [third.name]
    merge(tmp_path)
    index = Index(Folder(tmp_path))
    assert index.unindexed == []
    assert len(index.entries(exchange(3).url)) == 1


def test_a_merged_index_that_another_run_has_written_does_not_hide_segments(tmp_path: Path) -> None:
    for number in (1, 2):
        segment(tmp_path, number, [exchange(number)])
    merge(tmp_path)
    (tmp_path / "index.cdxj").write_text("")
    assert len(Index(Folder(tmp_path)).entries(exchange(2).url)) == 1


# In S3


def test_a_bucket_is_indexed_and_merged_as_a_folder_is(gate: Gate, tmp_path: Path) -> None:
    name = f"pages-{os.urandom(4).hex()}"
    bucket = made_bucket(f"http://{gate.target}", name)
    files = [segment(tmp_path, number, [exchange(number)]) for number in (1, 2)]
    for file in files:
        bucket.upload_file(str(file), f"crawl/{file.name}")
    bucket.put_object(Key=f"crawl/within/{files[0].name}", Body=b"of others")
    store = S3Storage(f"s3://{name}/crawl/", aws(gate.url))
    for indexed in (2, 0):
        assert merge_indices(store, print) == {"files": 2, "indexed": indexed}
        assert store.read("index.cdxj") == theirs(files)
    index = Index(store)
    (entry,) = index.entries(exchange(2).url)
    assert read(index, entry).body == text(2)
    files[1].unlink()
    bucket.delete_objects(Delete={"Objects": [{"Key": f"crawl/{files[1].name}"}]})
    with pytest.raises(CrawlprojectError, match="is in the index, and no longer in s3://"):
        read(Index(store), entry)
