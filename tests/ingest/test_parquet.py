"""Parquet files of seeds, as data sets have them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from crawlproject.errors import BadInput
from crawlproject.ingest import parquet
from crawlproject.ingest.files import columns_of, read
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.ingest.seed_rows import Columns, Line
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S

A, B, C = (f"https://museum.org/{name}.jpg" for name in "abc")


def written(path: Path, columns: dict[str, Any], **options: Any) -> SeedFile:
    pq.write_table(pa.table(columns), path, **options)
    return SeedFile(str(path), path.stat().st_size)


def lines(file: SeedFile, columns: Columns | None = None, after: int = 0) -> list[Line]:
    return list(read(file, lambda _: None, columns=columns or Columns(), after=after))


def seeds(found: list[Line]) -> list[Any]:
    """Return what each row is: a URL, the JSON of a seed, or `!reason`."""
    return [
        f"!{line.reason}" if line.seed is None else json.loads(line.seed) if line.seed[0] == "{" else line.seed
        for line in found
    ]


def test_rows_with_columns_of_other_names_and_those_to_keep(tmp_path: Path) -> None:
    file = written(
        tmp_path / "laion",
        {
            "URL": [A, " museum.org/b.jpg ", None, "ftp://a/", C],
            "key": [1, 2, 3, 4, None],
            "TEXT": ["one", None, "three", "four", "žluť"],
            "width": [3.5, float("nan"), 1.0, 1.0, 2.0],
            "other": [b"x"] * 5,
        },
    )
    found = lines(file, Columns({"url": "URL", "uuid": "key"}, {"TEXT": "TEXT", "width": "width"}))
    assert [line.number for line in found] == [1, 2, 3, 4, 5]
    assert seeds(found) == [
        {"url": A, "uuid": 1, "extra": {"TEXT": "one", "width": 3.5}},
        {"url": "http://museum.org/b.jpg", "uuid": 2},
        "!no URL",
        "!URL must begin with http:// or https://: ftp://a/",
        {"url": C, "extra": {"TEXT": "žluť", "width": 2.0}},
    ]


def test_columns_have_the_kinds_of_their_values(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "text": ["a"], "bytes": [b"a"], "int": [1], "float": [1.5], "bool": [True], "list": [[1]],
    }  # fmt: skip
    table = pa.table(values).append_column("word", pa.array(["a"]).dictionary_encode())
    pq.write_table(table.append_column("large", pa.array([2**63], pa.uint64())), tmp_path / "f.parquet")
    assert columns_of(SeedFile(str(tmp_path / "f.parquet"))) == {
        "text": "string", "bytes": "string", "int": "int64", "float": "double", "bool": "bool", "list": "json",
        "word": "string", "large": "json",
    }  # fmt: skip


def test_values_of_all_kinds_are_kept_as_json_has_them(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    values = {
        "at": pa.array([at]),
        "day": pa.array([at.date()]),
        "price": pa.array([Decimal("1.50")]),
        "tags": pa.array([["a", None]]),
        "by": pa.array([{"name": "x", "n": 1}]),
        "bytes": pa.array([b"text"]),
        "word": pa.array(["often"]).dictionary_encode(),
    }
    file = written(tmp_path / "seeds", {"url": [A], **values})
    [seed] = seeds(lines(file, Columns({}, dict(zip(values, values, strict=True)))))
    assert seed["extra"] == {
        "at": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "price": "1.50",
        "tags": ["a", None],
        "by": {"name": "x", "n": 1},
        "bytes": "text",
        "word": "often",
    }


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_a_value_that_is_no_text_spoils_its_own_row_only(tmp_path: Path, kind: Any) -> None:
    text = pa.Array.from_buffers(kind, 3, pa.array([b"x", b"\xff", b"z"]).buffers())
    file = written(tmp_path / "seeds", {"url": [A, B, C], "TEXT": text})
    assert seeds(lines(file, Columns({}, {"TEXT": "TEXT"}))) == [
        {"url": A, "extra": {"TEXT": "x"}},
        "!a value is not UTF-8",
        {"url": C, "extra": {"TEXT": "z"}},
    ]


@pytest.mark.parametrize("kind", ["plain", "repeated", "dictionary", "list"])
def test_a_row_of_more_than_a_mebibyte_is_refused(tmp_path: Path, kind: str) -> None:
    long = ["", "x" * 2**20, "y", "z" * 2**20, "w" * 2_000] * 3
    values = pa.array([[one] for one in long] if kind == "list" else long)
    values = values.dictionary_encode() if kind == "dictionary" else values
    columns = {"url": [f"https://museum.org/{number}" for number in range(15)], "TEXT": values}
    file = written(tmp_path / "seeds", columns, use_dictionary=kind != "plain")
    for after in (0, 2, 9):
        found = lines(file, Columns({}, {"TEXT": "TEXT"}), after)
        assert [line.number for line in found] == list(range(after + 1, 16))
        too_long = [line.number % 5 for line in found if line.reason == "longer than 1 MiB"]
        assert too_long == [line.number % 5 for line in found if line.number % 5 in {2, 4}]
        assert all(line.seed is not None for line in found if line.number % 5 not in {2, 4})


READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # whatever happens
from crawlproject.ingest import files, seed_files
from crawlproject.ingest.seed_rows import Columns
def peak():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) >> 10
with seed_files.needs_pyarrow("the test"):
    import pyarrow.parquet
before = peak()
[file] = seed_files.find(sys.argv[1:], None)
try:
    columns = Columns({}, {"TEXT": "TEXT"})
    print(sum(line.seed is None for line in files.read(file, lambda _: None, columns=columns)))
except OSError as error:
    print(error)
print(peak() - before)
"""
SMALL_PAGES: Any = {"compression": "zstd", "store_schema": False, "write_batch_size": 1, "write_statistics": False}


def repeated(count: int, size: int) -> Any:
    """Return a column that says a text of some bytes in each row, and takes no more in a file."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), ["data:" + "A" * size])


@pytest.mark.parametrize(
    ("column", "longest_file", "said"),
    [
        (lambda: repeated(1_500, 2**17), 1_100, "1500"),
        (lambda: repeated(256, 24 * 2**20), 1_400, "row group 0 takes more than 320 MiB of memory"),  # 6 GiB
        (
            lambda: pa.ListArray.from_arrays([0, 10**8], pa.nulls(10**8, pa.int8())),
            1_100,
            "row group 0 takes more",
        ),
    ],
    ids=["repeated", "repeated and long", "list"],
)
def test_memory_is_bounded_whatever_the_values(
    tmp_path: Path, column: Callable[[], Any], longest_file: int, said: str
) -> None:
    values = column()
    columns = {"url": [A] * len(values), "TEXT": values}
    file = written(tmp_path / "seeds.parquet", columns, **SMALL_PAGES, dictionary_pagesize_limit=2**30)
    del values, columns
    assert file.size < longest_file
    done = subprocess.run(
        [sys.executable, "-c", READ, file.name],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    result, grown = done.stdout.splitlines()
    assert said in result
    assert 0 < int(grown) < 400, "MiB"


def test_it_goes_on_behind_any_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 4)
    count = 23
    urls = [f"https://museum.org/{number}" for number in range(1, count + 1)]
    file = written(tmp_path / "seeds", {"url": urls, "title": ["x"] * count}, row_group_size=10)
    for after in range(count + 1):
        found = lines(file, after=after)
        assert [line.number for line in found] == list(range(after + 1, count + 1))
        assert [line.seed for line in found] == urls[after:]


@pytest.mark.parametrize("damage", ["footer", "page"])
def test_a_damaged_file_is_reported_by_name(tmp_path: Path, damage: str) -> None:
    file = written(tmp_path / "seeds", {"url": [f"https://museum.org/{number}" for number in range(5_000)]})
    path = Path(file.name)
    data = path.read_bytes()
    path.write_bytes(data[:-20] if damage == "footer" else data[:4] + bytes(1_000) + data[1_004:])
    with pytest.raises(OSError, match=f"{path}"):
        lines(file)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "seeds", {"url": [A]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"seeds needs pyarrow .* pip install 'crawlproject\[parquet\]'"):
        lines(file)
