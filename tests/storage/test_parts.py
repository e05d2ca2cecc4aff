"""Where the parts of a dataset are written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from crawlproject.errors import CrawlprojectError
from crawlproject.storage.parts import FolderParts, PartExists, S3Parts
from tests.storage.s3_gate import aws

OPENS = """
import sys, time
from crawlproject.storage.parts import S3Parts
from tests.storage.s3_gate import aws

parts = S3Parts("s3://bucket/out", aws("http://127.0.0.1:9"))
with parts.opened():
    path = parts.unfinished("00000000.tar")
    path.write_bytes(bytes(1000))
    print(path.parent, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def s3() -> S3Parts:
    return S3Parts("s3://bucket/out", aws("http://127.0.0.1:9"))


def opening(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Return a process that writes parts, and its folder."""
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", OPENS],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_was_writing_for_s3_is_removed_by_the_next(temporary: Path) -> None:
    alive, kept = opening(temporary)
    dead, left = opening(temporary)
    try:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        other = temporary / "crawlproject-dataset-file"
        other.write_bytes(b"no folder")
        assert (left / "00000000.tar").exists()
        with s3().opened():
            assert not left.exists()
            assert (kept / "00000000.tar").exists()
            assert other.exists()
            assert len([path for path in temporary.iterdir() if path.is_dir()]) == 2
        assert [path for path in temporary.iterdir() if path.is_dir()] == [kept]
    finally:
        for process in (alive, dead):
            process.kill()
            process.wait()


def test_what_leads_elsewhere_or_is_of_another_user_is_not_removed(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"x")
    link, others = temporary / "crawlproject-dataset-link", temporary / "crawlproject-dataset-others"
    link.symlink_to(elsewhere)
    others.mkdir()
    is_root = os.geteuid() == 0
    if is_root:  # nobody else can give a folder away
        os.chown(others, 65534, -1)
    with s3().opened():
        assert link.is_symlink()
        assert (elsewhere / "kept").exists()
        assert others.exists() == is_root


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_once_more(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    lock = fcntl.flock

    def late(handle: int, how: int) -> None:
        if not removed:
            removed.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
            Path(removed[0]).rmdir()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    parts = s3()
    with parts.opened():
        path = parts.unfinished("00000000.tar")
        path.write_bytes(b"x")
        assert removed != [str(path.parent)]


def test_a_temporary_folder_that_cannot_be_written_is_named(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    with (
        pytest.raises(CrawlprojectError, match=r"/missing: FileNotFoundError: .*; name one in TMPDIR"),
        s3().opened(),
    ):
        pass


def test_only_our_own_unfinished_files_are_removed(tmp_path: Path) -> None:
    ours = [".00000003.parquet.part", ".00000003.tar.part", ".00000002_stats.json.part", "._dataset.json.part"]
    others = [".film.mkv.part", ".0003.parquet.part", "00000003.parquet.part", ".00000003.parquet"]
    for name in (*ours, *others):
        (tmp_path / name).write_bytes(b"x")
    with FolderParts(tmp_path).opened():
        assert {path.name for path in tmp_path.iterdir()} == {*others, ".lock"}


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as Linux says of exFAT

    monkeypatch.setattr(os, "link", refuse)
    parts = FolderParts(tmp_path)
    with parts.opened():
        parts.unfinished("00000000.parquet").write_bytes(b"first")
        parts.put_new("00000000.parquet")
        parts.unfinished("00000000.parquet").write_bytes(b"second")
        with pytest.raises(PartExists, match=r"00000000\.parquet was written by another process"):
            parts.put_new("00000000.parquet")
    assert (tmp_path / "00000000.parquet").read_bytes() == b"first"
