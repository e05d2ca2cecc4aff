"""The names of thumbnails, and how they are stored."""

from __future__ import annotations

import errno
import hashlib
import ntpath
import os
import posixpath
import re
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.settings import Settings

from crawlproject import plugins
from crawlproject.errors import ConfigError
from crawlproject.storage.blobs import (
    PROBE,
    Folder,
    FolderStorage,
    Storage,
    check_storage,
    open_storage,
    original_name,
    thumbnail_name,
)
from tests.storage.s3_gate import Gate, aws, made_bucket

# Names


@pytest.mark.parametrize(
    ("identifier", "file"),
    [
        ("6f1c1f6e-0f7a-5a3c-9d2e-1b2c3d4e5f60", "6f1c1f6e-0f7a-5a3c-9d2e-1b2c3d4e5f60.jpg"),
        ("~", "%7E.jpg"),
        ("%41", "%2541.jpg"),
        ("ž馬", "%C5%BE%E9%A6%AC.jpg"),
        # hostile ones
        ("", ".jpg"),
        ("..", "...jpg"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd.jpg"),
        ("C:\\con", "C%3A%5Ccon.jpg"),
        ("a\x00b\n\x7f", "a%00b%0A%7F.jpg"),
        ("*?<>|\"'$;&`", "%2A%3F%3C%3E%7C%22%27%24%3B%26%60.jpg"),
        # long ones
        ("x" * 200, "x" * 200 + ".jpg"),
        ("x" * 201, hashlib.sha1(b"x" * 201).hexdigest() + ".jpg"),
        ("馬" * 1024, hashlib.sha1("馬".encode() * 1024).hexdigest() + ".jpg"),
    ],
)
def test_a_thumbnail_is_named_by_its_identifier_and_format_alone(identifier: str, file: str) -> None:
    digest = hashlib.sha1(identifier.encode()).hexdigest()
    name = thumbnail_name(identifier)
    assert name == f"{digest[:2]}/{file}"
    assert len(file.encode()) <= 204
    assert thumbnail_name(identifier, "WebP") == name.removesuffix(".jpg") + ".webp"


def test_the_names_of_further_sizes_and_of_originals_are_nobody_elses() -> None:
    assert thumbnail_name("6f1c", size=256) == thumbnail_name("6f1c").removesuffix(".jpg") + "@256.jpg"
    names = {thumbnail_name(identifier, size=size) for identifier in ("a", "a@256") for size in (None, 256)}
    assert len(names) == 4
    digest = hashlib.sha256(b"picture").hexdigest()
    assert original_name(digest, "JPEG") == f"{digest[:2]}/{digest}.jpg"
    assert original_name(digest, "TIFF") == f"{digest[:2]}/{digest}.tif"
    types = plugins.file_types()
    assert len({each.suffix for each in types.values()}) == len(types)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
@example("../" * 400)
@example("..")
@example("a\x00b\n\u202e/\\")
@example("x" * 10_000)
def test_no_name_leads_outside_the_storage(identifier: str) -> None:
    name = thumbnail_name(identifier)
    folder, file = name.split("/")
    assert re.fullmatch(r"[0-9a-f]{2}", folder)
    assert re.fullmatch(r"[A-Za-z0-9._%-]{0,200}\.jpg", file)
    assert file not in {".", "..", PROBE}
    assert posixpath.normpath("/store/" + name) == "/store/" + name
    assert ntpath.normpath("C:\\store/" + name) == ntpath.join("C:\\store", folder, file)
    if len(file) != 44:  # not the SHA-1
        assert unquote(file.removesuffix(".jpg")) == identifier


# A folder and a bucket


def bucket(gate: Gate) -> Storage:
    """Return a storage in a bucket of its own."""
    name = f"stored-{os.urandom(4).hex()}"
    made_bucket(f"http://{gate.target}", name)
    return open_storage(f"s3://{name}/some/prefix/", aws(gate.url))


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A storage of each kind."""
    if request.param == "folder":
        return open_storage(str(tmp_path / "a" / "b"), Settings())
    return bucket(request.getfixturevalue("gate"))


def test_what_is_there_is_read_in_parts_and_told_from_what_is_not(storage: Storage) -> None:
    assert not storage.has("00/x.jpg")
    with pytest.raises(FileNotFoundError) as missing:
        storage.read("00/x.jpg", 0, 5)
    assert storage.is_permanent(missing.value)
    storage.write("00/x.jpg", b"one")
    storage.write("00/x.jpg", b"0123456789")
    assert storage.has("00/x.jpg")
    assert storage.has("00/x.jpg", 10)
    assert not storage.has("00/x.jpg", 3)  # as after a power cut
    for offset, length, part in (
        (0, None, b"0123456789"),
        (0, 3, b"012"),
        (4, 2, b"45"),
        (8, 5, b"89"),
        (10, 5, b""),
    ):
        assert storage.read("00/x.jpg", offset, length) == part


def test_the_files_of_a_folder_are_listed_and_removed(storage: Storage) -> None:
    sizes = {f"one-1/{number}-abc": number for number in range(5)}
    assert storage.sizes("one-1/") == {}
    for name, size in sizes.items():
        storage.write(name, bytes(size))
    storage.write("one-12/1-abc", b"x")
    assert storage.sizes("one-1/") == sizes
    for _ in range(2):  # another worker was first
        storage.remove("one-1/3-abc")
    assert storage.sizes("one-1/").keys() == sizes.keys() - {"one-1/3-abc"}
    assert storage.sizes("one-12/") == {"one-12/1-abc": 1}


@pytest.mark.parametrize("mode", ["drop", 503])
def test_while_s3_is_down_nothing_counts_as_missing(gate: Gate, mode: str | int) -> None:
    storage = bucket(gate)
    storage.write("00/x.jpg", b"0123")
    gate.mode = mode
    for work in (
        lambda: storage.read("00/x.jpg", 0, 2),
        lambda: storage.has("00/x.jpg"),
        lambda: storage.sizes("00/"),
        lambda: storage.write("00/y.jpg", b"x"),
        lambda: storage.remove("00/x.jpg"),
    ):
        with pytest.raises(Exception) as caught:  # boto has several
            work()
        assert not isinstance(caught.value, FileNotFoundError)
    gate.mode = "pass"
    assert storage.sizes("00/") == {"00/x.jpg": 4}


def test_what_must_outlast_a_power_cut_is_synced_and_each_folder_on_its_way(
    tmp_path: Path, synced: list[str]
) -> None:
    store = FolderStorage(tmp_path / "packs", is_synced=True)
    for name, folders in (("one-1/10-abc", ["packs", "one-1"]), ("one-1/11-abc", ["one-1"])):
        synced.clear()
        store.write(name, b"x")
        assert synced[0].startswith(f"{os.getpid()}-")
        assert synced[1:] == folders


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStorage(tmp_path)
    store.write("00/x.jpg", b"whole")
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 8:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        store.write("00/x.jpg", b"half a thumbnail")
    assert files_in(tmp_path) == ["00/x.jpg"]
    assert (tmp_path / "00/x.jpg").read_bytes() == b"whole"


def test_partial_files_of_a_killed_process_are_removed_a_day_later(tmp_path: Path) -> None:
    FolderStorage(tmp_path)
    old, young = tmp_path / ".parts" / "1-old", tmp_path / ".parts" / "2-young"
    for part in (old, young):
        part.write_bytes(b"half")
    day_ago = time.time() - 86_401
    os.utime(old, (day_ago, day_ago))
    FolderStorage(tmp_path)
    assert files_in(tmp_path) == [".parts/2-young"]


@pytest.mark.parametrize("what", ["gone", "empty"])
def test_a_folder_that_vanishes_is_an_error_and_not_recreated(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "store"
    store = FolderStorage(folder)
    store.write("00/x.jpg", b"one")
    away = folder.rename(tmp_path / "away")
    if what == "empty":
        folder.mkdir()
    for work in (lambda: store.write("00/x.jpg", b"two"), lambda: store.has("00/x.jpg")):
        with pytest.raises(FileNotFoundError):
            work()
    if folder.is_dir():
        assert files_in(folder) == []
        folder.rmdir()
    away.rename(folder)
    store.write("00/x.jpg", b"two")
    assert (folder / "00/x.jpg").read_bytes() == b"two"


@pytest.mark.parametrize(
    ("error", "lasting"),
    [(errno.EACCES, True), (errno.EROFS, True), (errno.ENOTDIR, True), (errno.ENOSPC, False), (errno.EIO, False)],
)
def test_a_folder_tells_permanent_from_temporary_errors(tmp_path: Path, error: int, lasting: bool) -> None:
    assert Folder(tmp_path).is_permanent(OSError(error, "x")) is lasting


def test_a_folder_is_tried_before_the_crawl(tmp_path: Path) -> None:
    check_storage(str(tmp_path / "store"), Settings())
    assert files_in(tmp_path / "store") == [PROBE]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"IMAGES_STORE=.*/file/store cannot be used: .*Not a directory"):
        check_storage(str(tmp_path / "file" / "store"), Settings())
    with pytest.raises(ConfigError, match=r"CRAWL_KEEP_ORIGINALS=.*/file/store cannot be used"):
        check_storage(str(tmp_path / "file" / "store"), Settings(), "CRAWL_KEEP_ORIGINALS")


# S3


@pytest.mark.parametrize(("uri", "prefix"), [("s3://one/", ""), ("s3://two/some/prefix/", "some/prefix/")])
def test_s3_storage_puts_objects_under_its_prefix(moto: str, uri: str, prefix: str) -> None:
    made = made_bucket(moto, uri.split("/")[2])
    store = open_storage(uri, aws(moto))
    names = [thumbnail_name(identifier) for identifier in ("6f1c", "../a b", "馬", "x" * 300)]
    names.append(thumbnail_name("6f1c", "WebP"))
    for name in names:
        store.write(name, b"first")
        store.write(name, name.encode())
    assert {item.key for item in made.objects.all()} == {prefix + name for name in names}
    for name in names:
        found = made.Object(prefix + name).get()
        assert found["Body"].read() == name.encode()
        assert found["ContentType"] == ("image/webp" if name.endswith(".webp") else "image/jpeg")


@pytest.mark.parametrize(
    ("uri", "settings", "reason"),
    [
        ("s3://nowhere/", {}, "NoSuchBucket"),
        ("s3://Bad_Name!/", {}, "Invalid bucket name"),
        ("s3://checked/", {"AWS_ENDPOINT_URL": "no endpoint"}, "Invalid endpoint"),
        ("s3://checked/", {"AWS_ENDPOINT_URL": "http://user:pw@127.0.0.1:1"}, "EndpointConnectionError"),
    ],
)
def test_a_storage_that_cannot_be_written_refuses_the_start(
    moto: str, uri: str, settings: dict[str, str], reason: str
) -> None:
    given_settings = aws(moto)
    given_settings.update(settings)
    with pytest.raises(ConfigError, match=f"IMAGES_STORE={uri}.*{reason}") as caught:
        check_storage(uri, given_settings)
    assert "\n" not in str(caught.value)
    assert "S3CRET" not in str(caught.value)
    assert "pw" not in str(caught.value)
