"""From a body to a stored thumbnail: where it lies, how it gets there, and what becomes of a bad one."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from PIL import Image
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler

from crawlproject import config
from crawlproject.pipelines.thumbnail import (
    FolderStore,
    S3Store,
    ThumbnailPipeline,
    ThumbnailStore,
    open_store,
    thumbnail_name,
)
from crawlproject.records import Failure, FetchedImage, LinkRotEvent, utc_now
from tests.imaging.test_decoders import is_decoder
from tests.traps.sitecustomize import CRASH, SPIN

HEX = "0123456789abcdef"


def picture(size: tuple[int, int] = (900, 600), form: str = "JPEG", **more: Any) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(out, form, **more)
    return out.getvalue()


def fetched(body: bytes, identifier: str = "6f1c") -> FetchedImage:
    return FetchedImage(identifier, "https://museum.org/a", "museum", "image/jpeg", utc_now(), body)


# Names


@pytest.mark.parametrize(
    ("identifier", "file"),
    [
        ("6f1c1f6e-0f7a-5a3c-9d2e-1b2c3d4e5f60", "6f1c1f6e-0f7a-5a3c-9d2e-1b2c3d4e5f60.jpg"),
        ("AZaz09._-", "AZaz09._-.jpg"),
        ("a b", "a%20b.jpg"),
        ("~", "%7E.jpg"),
        ("%41", "%2541.jpg"),
        ("ž馬", "%C5%BE%E9%A6%AC.jpg"),
        # hostile ones
        ("", ".jpg"),
        (".", "..jpg"),
        ("..", "...jpg"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd.jpg"),
        ("/etc/passwd", "%2Fetc%2Fpasswd.jpg"),
        ("C:\\con", "C%3A%5Ccon.jpg"),
        ("a\x00b\n\x7f", "a%00b%0A%7F.jpg"),
        ("*?<>|\"'$;&`", "%2A%3F%3C%3E%7C%22%27%24%3B%26%60.jpg"),
        ("-rf", "-rf.jpg"),
        # long ones
        ("x" * 200, "x" * 200 + ".jpg"),
        ("x" * 201, hashlib.sha1(b"x" * 201).hexdigest() + ".jpg"),
        ("/" * 66 + "xx", "%2F" * 66 + "xx.jpg"),
        ("/" * 67, hashlib.sha1(b"/" * 67).hexdigest() + ".jpg"),
        ("馬" * 1024, hashlib.sha1("馬".encode() * 1024).hexdigest() + ".jpg"),
    ],
)
def test_a_thumbnail_is_named_by_its_identifier_alone(identifier: str, file: str) -> None:
    digest = hashlib.sha1(identifier.encode()).hexdigest()
    name = thumbnail_name(identifier)
    assert name == f"{digest[:2]}/{file}"
    assert len(file.encode()) <= 204


def test_no_two_identifiers_share_a_name() -> None:
    long = "x" * 201
    close = ["a", "A", "a/", "a%2F", "a%2f", "a%252F", "a ", "a+", "a%20", "a.jpg", ".", "..", "~", "%7E", long]
    close.append(hashlib.sha1(long.encode()).hexdigest())
    assert len({thumbnail_name(identifier) for identifier in close}) == len(close)


# A folder


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_store_makes_what_is_missing_and_replaces_what_is_there(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "a" / "b")
    store.write("00/x.jpg", b"one")
    store.write("00/x.jpg", b"two")
    store.write("ff/x.jpg", b"three")
    assert files_in(tmp_path / "a" / "b") == ["00/x.jpg", "ff/x.jpg"]
    assert (tmp_path / "a/b/00/x.jpg").read_bytes() == b"two"


@pytest.mark.parametrize("identifier", ["../../escaped", "/escaped", "..", "a/b", "x" * 1024])
def test_nothing_is_written_outside_the_folder(tmp_path: Path, identifier: str) -> None:
    store = FolderStore(tmp_path / "deep" / "store")
    store.write(thumbnail_name(identifier), b"x")
    assert len(files_in(tmp_path / "deep" / "store")) == 1
    assert len(files_in(tmp_path)) == 1


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.write("00/x.jpg", b"whole")
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        store.write("00/x.jpg", b"half a thumbnail")
    assert files_in(tmp_path) == ["00/x.jpg"]
    assert (tmp_path / "00/x.jpg").read_bytes() == b"whole"


def test_a_reader_never_sees_half_a_thumbnail_though_many_write_it(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    whole = {bytes([number]) * 200_000 for number in range(4)}
    store.write("00/x.jpg", next(iter(whole)))
    done = threading.Event()
    seen: list[bytes] = []

    def look() -> None:
        while not done.is_set():
            seen.append((tmp_path / "00/x.jpg").read_bytes())

    def write(data: bytes) -> None:
        for _ in range(40):
            store.write("00/x.jpg", data)

    reader = threading.Thread(target=look)
    writers = [threading.Thread(target=write, args=(data,)) for data in whole]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert seen
    assert set(seen) <= whole
    assert files_in(tmp_path) == ["00/x.jpg"]


# S3


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def aws(endpoint: str) -> Settings:
    return Settings(
        {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION_NAME": "us-east-1",
        }
    )


def bucket(endpoint: str, name: str) -> Any:
    resource = boto3.resource(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="id",
        aws_secret_access_key="secret",
    )
    return resource.create_bucket(Bucket=name)


@pytest.mark.parametrize(("uri", "prefix"), [("s3://one/", ""), ("s3://two/some/prefix/", "some/prefix/")])
def test_an_s3_store_puts_objects_under_its_prefix(s3: str, uri: str, prefix: str) -> None:
    made = bucket(s3, uri.split("/")[2])
    store = open_store(uri, aws(s3), 2)
    names = [thumbnail_name(identifier) for identifier in ("6f1c", "../a b", "馬", "x" * 300)]
    for name in names:
        store.write(name, b"first")
        store.write(name, name.encode())
    assert {item.key for item in made.objects.all()} == {prefix + name for name in names}
    for name in names:
        found = made.Object(prefix + name).get()
        assert found["Body"].read() == name.encode()
        assert found["ContentType"] == "image/jpeg"


def test_a_bucket_that_is_not_there_is_trouble_of_our_own(s3: str) -> None:
    store = open_store("s3://nowhere/", aws(s3), 1)
    with pytest.raises(Exception, match="NoSuchBucket"):
        store.write("00/x.jpg", b"x")


async def test_the_pipeline_writes_to_s3_from_its_threads(s3: str) -> None:
    made = bucket(s3, "pipeline")
    settings = config.load({"IMAGES_STORE": "s3://pipeline/", "CRAWL_DECODE_PROCESSES": 4})
    pipeline = ThumbnailPipeline(settings, open_store(settings.images_store, aws(s3), 4))
    items = [fetched(picture((90, 60)), str(number)) for number in range(12)]
    ready = await asyncio.gather(*(pipeline.process_item(item) for item in items))
    pipeline.close_spider()
    assert {item.key for item in made.objects.all()} == {one.thumbnail for one in ready}
    assert len({one.thumbnail for one in ready}) == 12


@pytest.mark.parametrize(
    ("uri", "kind"),
    [("{tmp}/plain", FolderStore), ("file://{tmp}/url", FolderStore), ("s3://bucket/prefix/", S3Store)],
)
def test_the_store_that_images_store_names(tmp_path: Path, uri: str, kind: type) -> None:
    store = open_store(uri.format(tmp=tmp_path), aws("http://127.0.0.1:1"), 1)
    assert isinstance(store, kind)
    assert [path.name for path in tmp_path.iterdir()] == ([] if kind is S3Store else [uri.rpartition("/")[2]])


# The pipeline


class Memory:
    """A store that remembers, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.written: dict[str, bytes] = {}
        self.threads: set[str] = set()

    def write(self, name: str, data: bytes) -> None:
        self.threads.add(threading.current_thread().name)
        if self.error is not None:
            raise self.error
        self.written[name] = data


@pytest.fixture
def make() -> Iterator[Callable[..., ThumbnailPipeline]]:
    made: list[ThumbnailPipeline] = []

    def pipeline(store: ThumbnailStore, **settings: Any) -> ThumbnailPipeline:
        made.append(ThumbnailPipeline(config.load(settings), store))
        return made[-1]

    yield pipeline
    for one in made:
        one.close_spider()


Make = Callable[..., ThumbnailPipeline]


async def test_a_picture_gets_facts_and_a_thumbnail_and_loses_its_body(make: Make) -> None:
    store, body = Memory(), picture((900, 600), quality=77)
    item = await make(store).process_item(fetched(body))
    assert isinstance(item, FetchedImage)
    assert item.body == b""
    assert item.facts is not None
    assert (item.facts.width, item.facts.height, item.facts.quality) == (900, 600, 77)
    assert (item.facts.filesize, item.facts.format) == (len(body), "JPEG")
    assert item.facts.sha256 == hashlib.sha256(body).hexdigest()
    assert item.thumbnail == thumbnail_name("6f1c")
    assert list(store.written) == [item.thumbnail]
    with Image.open(io.BytesIO(store.written[item.thumbnail])) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (640, 427))
    assert all(name.startswith("decode") for name in store.threads)


async def test_the_quality_of_thumbnails_is_a_setting(make: Make) -> None:
    sizes = []
    for quality in (20, 90):
        store = Memory()
        await make(store, CRAWL_THUMBNAIL_QUALITY=quality).process_item(fetched(picture()))
        sizes.append(len(store.written[thumbnail_name("6f1c")]))
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty body"),
        (b"<html>not here any more</html>", "no picture"),
        (picture()[:300], "JPEG"),
        (picture((1000, 200), "PNG"), "too many pixels: 1000 x 200, CRAWL_MAX_PIXELS is 100000"),
    ],
)
async def test_what_cannot_be_read_is_a_failure_that_no_retry_would_mend(
    make: Make, body: bytes, reason: str
) -> None:
    store = Memory()
    item = await make(store, CRAWL_MAX_PIXELS=100_000).process_item(fetched(body))
    assert isinstance(item, Failure)
    assert (item.identifier, item.url, item.source) == ("6f1c", "https://museum.org/a", "museum")
    assert (item.kind, item.status, item.retryable, item.throttled) == ("unreadable", 200, False, False)
    assert reason in item.reason
    assert store.written == {}


@pytest.mark.parametrize(
    ("trap", "reason"),
    [
        (CRASH, "crashes the decoder: killed by SIGSEGV"),
        (SPIN, "takes longer to decode than CRAWL_DECODE_TIMEOUT (1 s)"),
    ],
)
async def test_what_a_decoder_does_not_survive_is_unreadable_and_the_next_picture_is_not(
    make: Make, monkeypatch: pytest.MonkeyPatch, trap: bytes, reason: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "traps"))
    store = Memory()
    pipeline = make(store, CRAWL_DECODE_TIMEOUT=1)
    item = await pipeline.process_item(fetched(picture(comment=trap)))
    assert isinstance(item, Failure)
    assert (item.kind, item.reason, item.status, item.retryable) == ("unreadable", reason, 200, False)
    assert store.written == {}
    assert isinstance(await pipeline.process_item(fetched(picture())), FetchedImage)


async def test_a_coded_body_is_decoded_and_a_bomb_is_too_large(make: Make) -> None:
    body, store = picture(), Memory()
    pipeline = make(store, DOWNLOAD_MAXSIZE=1_000_000)
    item = fetched(gzip.compress(body))
    item.codings = ("gzip",)
    ready = await pipeline.process_item(item)
    assert (ready.facts.filesize, ready.facts.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    bomb = fetched(gzip.compress(bytes(1_000_001)))
    bomb.codings = ("gzip",)
    failure = await pipeline.process_item(bomb)
    assert (failure.kind, failure.retryable) == ("too_large", False)
    assert "larger than DOWNLOAD_MAXSIZE (1000000 bytes) without its gzip coding" in failure.reason


async def test_no_process_stays_when_the_spider_closes(make: Make) -> None:
    pipeline = make(Memory())
    await asyncio.gather(*(pipeline.process_item(fetched(picture(), str(n))) for n in range(4)))
    mine = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    assert [pid for pids in mine for pid in pids if is_decoder(int(pid))]
    pipeline.close_spider()
    mine = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    assert not [pid for pids in mine for pid in pids if is_decoder(int(pid))]


async def test_trouble_of_the_store_is_raised(make: Make) -> None:
    """It is ours, and must not look like a bad picture: the lease goes back."""
    with pytest.raises(OSError, match="No space left"):
        await make(Memory(OSError(28, "No space left on device"))).process_item(fetched(picture()))


@pytest.mark.parametrize(
    "item",
    [
        LinkRotEvent("1", "http://a/", "museum", 404, utc_now()),
        Failure("1", "http://a/", "museum", kind="http", reason="status 500"),
        {"any": "thing"},
    ],
)
async def test_other_items_pass(make: Make, item: Any) -> None:
    assert await make(Memory()).process_item(item) is item


async def test_pictures_are_looked_at_beside_each_other_and_not_on_the_reactor(make: Make) -> None:
    barrier = threading.Barrier(3, timeout=20)

    class Meeting(Memory):
        def write(self, name: str, data: bytes) -> None:
            super().write(name, data)
            barrier.wait()

    store = Meeting()
    pipeline = make(store, CRAWL_DECODE_PROCESSES=3)
    await asyncio.gather(*(pipeline.process_item(fetched(picture((90, 60)), str(n))) for n in range(3)))
    assert len(store.threads) == 3


async def test_a_crawler_gives_the_pipeline_its_settings(tmp_path: Path) -> None:
    crawler = get_crawler(settings_dict={"IMAGES_STORE": str(tmp_path / "out"), "CRAWL_DECODE_PROCESSES": 1})
    pipeline = ThumbnailPipeline.from_crawler(crawler)
    item = await pipeline.process_item(fetched(picture((90, 60))))
    pipeline.close_spider()
    assert files_in(tmp_path / "out") == [item.thumbnail]


def test_hex_folders_only() -> None:
    folders = {thumbnail_name(str(number)).split("/")[0] for number in range(5000)}
    assert folders == {a + b for a in HEX for b in HEX}
