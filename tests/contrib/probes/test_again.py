"""Which rows of a dataset are checked again, and what is known of them."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from crawlproject.contrib.probes import again
from crawlproject.contrib.probes.again import Latest
from crawlproject.contrib.probes.feeding import Probes
from crawlproject.errors import BadInput
from crawlproject.ingest.files import read
from crawlproject.ingest.seed_files import SeedFile, find
from crawlproject.ingest.seed_rows import Columns
from tests.contrib.probes import datasets

DATE = "Sun, 22 Nov 2026 10:30:00 GMT"


def dataset(folder: Path, *parts: list[dict[str, Any]]) -> list[SeedFile]:
    for number, part in enumerate(parts):
        datasets.write(folder / f"{number:08d}.parquet", part)
    return find([str(folder)], {})


def seeds(files: list[SeedFile]) -> list[Any]:
    reading = Probes(["out/"], Namespace(spider="images", again=True))
    columns, latest = Columns(reading=reading), Latest(files)
    found = []
    for index, file in enumerate(files):
        for line in read(file, lambda _: None, columns=columns):
            if latest.has(index, line.number):
                assert line.seed is not None, line.reason
                found.append(json.loads(line.seed))
    return found


def test_the_latest_row_of_each_image_says_what_is_known(tmp_path: Path) -> None:
    files = dataset(
        tmp_path,
        [
            {"identifier": "a", "etag": '"1"', "at": 1},
            {"identifier": "b", "last_modified": DATE, "filesize": 7, "final_url": "https://cdn.org/b"},
            {"identifier": "c", "etag": '"1"', "at": 9},
            {"identifier": "a", "etag": '"2"', "at": 5, "status": "probed"},
        ],
        [
            {"identifier": "c", "etag": '"0"', "at": 8},
            {"identifier": "d", "status": "gone", "at": 1},
            {"identifier": "e", "at": 1},
            {"identifier": "e", "at": 2, "status": "gone"},
            {"identifier": "f", "at": 1, "status": "gone"},
            {"identifier": "f", "at": 2, "status": "failed"},
            {"identifier": None, "url": None, "status": "failed"},
        ],
    )
    found = {seed["identifier"]: seed for seed in seeds(files)}
    assert {name: seed["probe"] for name, seed in found.items()} == {
        "a": {"etag": '"2"'},
        "b": {"last_modified": DATE, "filesize": 7, "final_url": "https://cdn.org/b"},
        "c": {"etag": '"1"'},
        "f": True,
    }
    assert found["a"] == {
        "url": "https://museum.org/a.jpg", "identifier": "a", "source": "museum", "again": True,
        "probe": {"etag": '"2"'},
    }  # fmt: skip


def test_a_failure_forgets_nothing(tmp_path: Path) -> None:
    files = dataset(
        tmp_path,
        [
            {"identifier": "a", "etag": '"1"', "at": 1, "filesize": 7},
            {"identifier": "b", "etag": '"1"', "at": 1},
            {"identifier": "b", "status": "unchanged", "last_modified": DATE, "at": 2},
            {"identifier": "c", "etag": '"1"', "at": 1},
            {"identifier": "d", "etag": '"1"', "at": 1},
        ],
        [
            {"identifier": "a", "status": "failed", "at": 2},
            {"identifier": "a", "status": "failed", "at": 3},
            {"identifier": "b", "status": "failed", "at": 4},
            {"identifier": "c", "status": "gone", "at": 2},
            {"identifier": "c", "status": "failed", "at": 3},
            {"identifier": "d", "status": "failed", "at": 2},
            {"identifier": "d", "status": "gone", "at": 3},
            {"identifier": "e", "status": "failed", "at": 3},
        ],
    )
    assert {seed["identifier"]: seed["probe"] for seed in seeds(files)} == {
        "a": {"etag": '"1"', "filesize": 7},
        "b": {"last_modified": DATE},  # by then the site named no ETag
        "c": {"etag": '"1"'},
        "e": True,
    }


def test_what_was_fed_with_a_seed_is_fed_again(tmp_path: Path) -> None:
    said = {"alt": "x" * 2_000, "found_on": "https://museum.org/"}
    files = dataset(
        tmp_path,
        [
            {"identifier": "a", "extra": json.dumps({"TEXT": "a cat", "n": [1]})},
            {"identifier": "a", "extra": None, "status": "failed", "at": 3},
            {"identifier": "b", "extra": json.dumps(said | {"TEXT": "y" * 1_000})},
            {"identifier": "c", "extra": json.dumps({"alt": "short"})},
            {"identifier": "d"},
            {"identifier": "e", "status": "failed", "extra": json.dumps({"seed": '{"url": "x"}', "TEXT": "z"})},
            {"identifier": "f", "extra": json.dumps({"seed": 5})},
        ],
    )
    assert {seed["identifier"]: seed.get("extra") for seed in seeds(files)} == {
        "a": {"TEXT": "a cat", "n": [1]},
        "b": {"TEXT": "y" * 1_000},  # beside what a page said it would be too much
        "c": {"alt": "short"},
        "d": None,
        "e": {"TEXT": "z"},
        "f": {"seed": 5},
    }


def test_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "_ROWS", 1_000)
    parts = [[{"identifier": str(n), "at": part * n} for n in range(3_000)] for part in (1, 3, 2)]
    latest = Latest(dataset(tmp_path, *parts))
    kept = [sum(latest.has(file, row) for row in range(1, 3_001)) for file in range(3)]
    assert kept == [0, 2_999, 1]  # of the first image, whose times are the same, the last


@pytest.mark.parametrize("name", ["seeds.csv", "other.parquet", "junk.parquet"])
def test_files_that_are_no_dataset_are_refused(tmp_path: Path, name: str) -> None:
    import pyarrow as pa

    (tmp_path / "seeds.csv").write_text("url\nhttps://museum.org/a.jpg\n")
    pq.write_table(pa.table({"identifier": ["a"], "url": ["https://a/"]}), tmp_path / "other.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1junk")
    with pytest.raises(BadInput, match=f"{name} is not a file of a dataset"):
        Latest(find([str(tmp_path / name)], {}))
