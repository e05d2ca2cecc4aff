"""Folders and patterns, here and in S3."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from scrapy.settings import Settings

from crawlproject.errors import BadInput
from crawlproject.ingest import seed_files
from crawlproject.ingest.files import read
from crawlproject.ingest.seed_files import SeedFile, find
from tests.storage.s3_gate import aws, made_bucket

A, B = (f"https://museum.org/{name}.jpg" for name in "ab")
FILES = (
    "b.parquet",
    "a.tsv",
    "c/1.jsonl.gz",
    "c/d/2.csv",
    "note.md",
    "_SUCCESS",
    ".a.tsv",
    "_x/a.tsv",
    "c/[1].txt",
)


def names(argument: str, settings: Settings | None = None) -> list[str]:
    return [file.name for file in find([argument], settings or Settings())]


def parquet(*urls: str) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.table({"url": list(urls)}), data)
    return data.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(A)
    return tmp_path


@pytest.fixture
def bucket(moto: str) -> Iterator[Any]:
    """Settings for the bucket `seeds`, in which FILES are."""
    made = made_bucket(moto, "seeds")
    for name in FILES:
        body = parquet(A, B) if name.endswith(".parquet") else gzip.compress(f"{B}\n".encode())
        made.put_object(Key=name, Body=body)
    yield aws(moto)
    made.objects.all().delete()
    made.delete()


PATTERNS = {
    "": ["a.tsv", "b.parquet", "c/1.jsonl.gz", "c/[1].txt", "c/d/2.csv"],
    "c": ["c/1.jsonl.gz", "c/[1].txt", "c/d/2.csv"],
    "c/": ["c/1.jsonl.gz", "c/[1].txt", "c/d/2.csv"],
    "*.parquet": ["b.parquet"],
    "?.tsv": ["a.tsv"],
    "[!a].*": ["b.parquet"],
    "[ab].*": ["a.tsv", "b.parquet"],
    "*/*": ["_x/a.tsv", "c/1.jsonl.gz", "c/[1].txt"],
    "**/*.csv": ["c/d/2.csv"],
    "c/**/*.*": ["c/1.jsonl.gz", "c/[1].txt", "c/d/2.csv"],
    "note.md": ["note.md"],
}


def test_a_folder_or_a_pattern_stands_for_files_in_their_order(folder: Path, bucket: Settings) -> None:
    for place in (str(folder), "s3://seeds"):
        for pattern, found in PATTERNS.items():
            assert names(f"{place}/{pattern}", bucket) == [f"{place}/{name}" for name in found]


def test_files_of_s3_are_read_like_others(bucket: Settings) -> None:
    table, text = find(["s3://seeds/b.parquet", "s3://seeds/a.tsv"], bucket)
    assert table.size == len(parquet(A, B))
    assert table.modified > 0
    reported: list[int] = []
    assert [line.seed for line in read(table, reported.append)] == [A, B]
    assert [line.seed for line in read(table, reported.append, after=1)] == [B]
    assert [line.seed for line in read(text, reported.append)] == [B]


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("*.xml", "no files match"),
        ("_x", "no file in this folder ends in .parquet, .csv"),
    ],
)
def test_what_stands_for_no_file_is_refused(folder: Path, bucket: Settings, argument: str, reason: str) -> None:
    (folder / "_x" / "a.tsv").rename(folder / "_x" / "a.xls")
    with pytest.raises(BadInput, match=reason):
        names(f"{folder}/{argument}")
    remote = argument if argument[0] == "*" else "empty"
    with pytest.raises(BadInput, match=reason if argument[0] == "*" else "s3://seeds/empty is not there"):
        names(f"s3://seeds/{remote}", bucket)


@pytest.mark.parametrize("argument", ["http://a/b.csv", "hdfs://a/b", "s3://", "s3://*/a", "gs:///a"])
def test_other_places_are_refused(argument: str) -> None:
    with pytest.raises(BadInput, match=r"from folders, s3:// and gs://|name a bucket"):
        names(argument)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"s3://a/b needs pyarrow .* pip install 'crawlproject\[parquet\]'"):
        names("s3://a/b")


def test_a_table_on_stdin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seeds").write_bytes(parquet(A))
    with (tmp_path / "seeds").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(BadInput, match="Parquet cannot be read from stdin"):
            list(read(SeedFile("-"), lambda _: None))


def test_a_google_storage_that_cannot_be_asked_is_told_of_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = {"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps(credentials | {"token_uri": "http://127.0.0.1:9/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setattr(seed_files, "_GOOGLE_PATIENCE", timedelta(seconds=1))
    with pytest.raises(OSError, match="OAuth2 access token"):
        find(["gs://bucket/a.csv"], Settings())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^nosuch\.parquet: no such file$"):
        find(["nosuch.parquet"], Settings())
