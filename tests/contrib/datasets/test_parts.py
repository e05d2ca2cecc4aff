"""Where the parts of a dataset are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproject.contrib.datasets.parts import FolderParts, S3Parts
from crawlproject.errors import CrawlprojectError
from tests.storage.s3_gate import aws


def test_a_temporary_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    parts = S3Parts("s3://bucket/out", aws("http://127.0.0.1:9"))
    with (
        parts.opened(),
        pytest.raises(CrawlprojectError, match=r"/missing: FileNotFoundError: .*; name another folder in TMPDIR"),
    ):
        parts.create("00000000.tar")


def test_only_our_own_unfinished_files_are_removed(tmp_path: Path) -> None:
    ours = [".00000003.parquet.part", ".00000003.tar.part", "._dataset.json.part"]
    others = [".film.mkv.part", ".0003.parquet.part", "00000003.parquet.part", ".00000003.parquet"]
    for name in (*ours, *others):
        (tmp_path / name).write_bytes(b"x")
    with FolderParts(tmp_path).opened():
        assert {path.name for path in tmp_path.iterdir()} == {*others, ".lock"}


def test_a_part_is_on_disk_before_it_has_its_name(tmp_path: Path, synced: list[str]) -> None:
    parts = FolderParts(tmp_path)
    parts.create("00000000.parquet").write(b"x")
    parts.put_new("00000000.parquet")
    assert synced == [".00000000.parquet.part", tmp_path.name]
