"""A catalogue in Parquet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from crawlproject.errors import CatalogueError
from crawlproject.sources.catalogue import Row
from crawlproject.sources.catalogue_reader import check_catalogue, read_catalogue
from tests.conftest import ROOT
from tests.sites import served
from tests.waiting import PATIENCE_S


def write(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def rows_of(place: object) -> dict[str, Row]:
    with read_catalogue(str(place)) as catalogue:
        return {row.source: row for rows in catalogue.rows(100) for row in rows}


def test_a_parquet_file_says_what_json_says(tmp_path: Path) -> None:
    hosts = {"image_count": 1, "hosts": ["a.example", "b.example"]}
    rows: list[dict[str, Any]] = [
        {"source_name": "Flickr", "image_count": 500_000_000, "source_url": "https://flickr.com"},
        {"source_name": "museum", "media_count": 5_000, "hosts": ["img.museum.org"]},
        {"source_name": "archive", **hosts, "robots": "ignore", "gone": [403]},
        {"source_name": "shaky", **hosts, "circuit": {"errors": 0.5}},
        {"source_name": "short", **hosts, "circuit": {"open": 2}},
    ]
    names = {name: None for row in rows for name in row}
    path = write(tmp_path / "catalogue.parquet", [names | row for row in rows])
    (tmp_path / "catalogue.json").write_text(json.dumps(rows))
    with served(partial(SimpleHTTPRequestHandler, directory=tmp_path)) as site:
        url = f"http://127.0.0.1:{site.server_port}/catalogue.parquet"
        found = [rows_of(place) for place in (path, tmp_path / "catalogue.json", url)]
    assert found[0] == found[1] == found[2]
    assert found[0].keys() == {"flickr", "museum", "archive", "shaky", "short"}


def test_a_bad_row_is_left_out_and_named(tmp_path: Path) -> None:
    rows: list[dict[str, Any]]
    rows = [{"source_name": "museum", "image_count": Decimal(5)}, {"source_name": None, "image_count": Decimal(1)}]
    with pytest.raises(CatalogueError, match=r"row 1: image_count of museum must be .* from 0, not '5'"):
        read_catalogue(str(write(tmp_path / "c.parquet", rows)))
    rows = [{"source_name": name, "image_count": 1} for name in ("a", None, "b")]
    path = write(tmp_path / "d.parquet", rows)
    with read_catalogue(str(path)) as catalogue:
        assert [(row.number, row.source) for row in catalogue.bad] == [(2, None)]


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    path = write(tmp_path / "whole", [{"source_name": f"source{n}", "image_count": n} for n in range(9)])
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CatalogueError, match=r"CRAWL_SOURCES=.*cut\.parquet: not a Parquet file that can be read"):
        check_catalogue(str(cut))
    other = write(tmp_path / "other.parquet", [{"name": "museum", "size": 1}])
    with pytest.raises(CatalogueError, match=r"no column source_name, only name, size"):
        check_catalogue(str(other))


CHECK = """
import resource, sys
from crawlproject.errors import CatalogueError
from crawlproject.sources.catalogue_reader import check_catalogue
try:
    check_catalogue(sys.argv[1])
except CatalogueError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


def test_a_kilobyte_that_stands_for_gigabytes_is_refused(tmp_path: Path) -> None:
    names = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2_000, pyarrow.int32()), ["a" * 2**22])
    path = tmp_path / "catalogue.parquet"
    options: Any = {"compression": "zstd", "store_schema": False, "dictionary_pagesize_limit": 2**30}
    parquet.write_table(pyarrow.table({"source_name": names}), path, write_statistics=False, **options)
    assert path.stat().st_size < 1_100
    command, environment = [sys.executable, "-c", CHECK, str(path)], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    said, grown = done.stdout.splitlines()
    assert "row group 0 takes more than 320 MiB of memory" in said
    assert int(grown) < 500, "MiB, with Python and pyarrow"


def test_without_pyarrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "catalogue.parquet", [{"source_name": "museum", "image_count": 1}])
    absent = tmp_path / "absent" / "pyarrow"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(absent.parent)
    needed = r"a catalogue in Parquet needs pyarrow .*: pip install 'crawlproject\[parquet\]'"
    with pytest.raises(CatalogueError, match=needed):
        check_catalogue(str(path))
