"""Packs: extents in files of a folder and in objects of S3, and what an extent is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from scrapy.settings import Settings

from crawlproject.contrib.overflow.packs import compressed, decompressed, probe
from crawlproject.storage.blobs import FolderStorage, Storage, open_storage
from crawlproject.storage.s3 import S3Storage
from tests.storage.s3_gate import Gate, aws, made_bucket


def bucket_packs(gate: Gate) -> S3Storage:
    """Return a store in a bucket of its own."""
    name = f"packs-{os.urandom(4).hex()}"
    made_bucket(f"http://{gate.target}", name)
    packs = open_storage(f"s3://{name}/some/prefix/", aws(gate.url), is_synced=True)
    assert isinstance(packs, S3Storage)
    return packs


@pytest.fixture(params=["folder", "s3"])
def packs(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A store of each kind."""
    if request.param == "folder":
        return open_storage(str(tmp_path / "packs"), Settings(), is_synced=True)
    return bucket_packs(request.getfixturevalue("gate"))


def test_a_part_of_a_pack_is_what_was_written_there(packs: Storage) -> None:
    packs.write("one-1/10-abc", b"0123456789")
    assert packs.read("one-1/10-abc", 0, 3) == b"012"
    assert packs.read("one-1/10-abc", 4, 2) == b"45"
    assert packs.read("one-1/10-abc", 8, 5) == b"89"
    assert packs.read("one-1/10-abc", 10, 5) == b""


def test_a_pack_that_is_missing_is_told_from_a_store_that_fails(packs: Storage) -> None:
    packs.write("one-1/.store", b"")
    assert packs.has("one-1/.store")
    assert not packs.has("one-1/10-abc")
    with pytest.raises(FileNotFoundError):
        packs.read("one-1/10-abc", 0, 5)


def test_the_packs_of_a_folder_are_listed_and_removed(packs: Storage) -> None:
    names = {f"one-1/{number}-abc" for number in range(5)}
    assert list(packs.sizes("one-1/")) == []
    for name in names:
        packs.write(name, b"x")
    packs.write("one-12/1-abc", b"x")
    probe(packs)
    assert set(packs.sizes("one-1/")) == names
    packs.remove("one-1/3-abc")
    packs.remove("one-1/3-abc")  # another worker was first
    assert set(packs.sizes("one-1/")) == names - {"one-1/3-abc"}
    assert list(packs.sizes("one-12/")) == ["one-12/1-abc"]


def test_a_folder_that_is_not_there_is_an_error_and_no_missing_pack(tmp_path: Path) -> None:
    packs = FolderStorage(tmp_path / "packs", is_synced=True)
    packs.write("one-1/10-abc", b"x")
    packs.folder.rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError):
        packs.has("one-1/10-abc")
    with pytest.raises(FileNotFoundError):
        packs.write("one-1/11-abc", b"x")
    assert not packs.folder.exists()


def test_a_pack_and_each_folder_on_its_way_are_synced(tmp_path: Path, synced: list[str]) -> None:
    packs = FolderStorage(tmp_path / "packs", is_synced=True)
    synced.clear()
    packs.write("one-1/10-abc", b"x")
    part, *folders = synced
    assert part.startswith(f"{os.getpid()}-")
    assert folders == ["packs", "one-1"]
    packs.write("one-1/11-abc", b"x")
    assert synced[3:][1:] == ["one-1"]


@pytest.mark.parametrize("mode", ["drop", 503])
def test_while_s3_is_down_nothing_counts_as_missing(gate: Gate, mode: str | int) -> None:
    packs = bucket_packs(gate)
    packs.write("one-1/10-abc", b"0123")
    gate.mode = mode
    for work in (
        lambda: packs.read("one-1/10-abc", 0, 2),
        lambda: packs.has("one-1/10-abc"),
        lambda: list(packs.sizes("one-1/")),
        lambda: packs.write("one-1/11-abc", b"x"),
        lambda: packs.remove("one-1/10-abc"),
    ):
        with pytest.raises(Exception) as caught:  # boto has several
            work()
        assert not isinstance(caught.value, FileNotFoundError)
    gate.mode = "pass"
    assert list(packs.sizes("one-1/")) == ["one-1/10-abc"]
    assert packs.read("one-1/10-abc", 1, 2) == b"12"


# Extents


@given(some.lists(some.binary(max_size=300), max_size=100))
def test_an_extent_is_read_as_it_was_written(entries: list[bytes]) -> None:
    assert decompressed(compressed(entries)) == entries


def test_an_extent_that_is_cut_or_changed_is_no_extent() -> None:
    whole = compressed([b"request %d" % number for number in range(64)])
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="extent"):
            decompressed(whole[:end])
    changed = bytearray(whole)
    for at in range(2, len(whole)):
        changed[at] ^= 1
        with pytest.raises(ValueError, match="extent"):
            decompressed(bytes(changed))
        changed[at] ^= 1
