"""From a body to a stored thumbnail, or to a failure."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image
from scrapy.utils.test import get_crawler

from crawlproject import config
from crawlproject.models import Fetch, FetchedImage, ImageEvent, LinkRotEvent, StoredThumbnail, utc_now
from crawlproject.pipelines.thumbnail import ThumbnailPipeline
from crawlproject.politeness.outcomes import STORAGE_UNAVAILABLE, UNREADABLE, Failure, of_status
from crawlproject.storage.blobs import PROBE, FolderStorage, Storage, thumbnail_name
from tests.imaging.analysing import picture
from tests.waiting import until_async


def fetched(body: bytes, identifier: str = "6f1c") -> FetchedImage:
    fetch = Fetch(final_url="https://museum.org/a", redirects=0, attempts=1, fetch_s=0.1)
    who = {"identifier": identifier, "url": "https://museum.org/a", "source": "museum"}
    said = {**who, "content_type": "image/jpeg", "fetched_at": utc_now(), **fetch._asdict()}
    return FetchedImage(said, body)


class Memory:
    """A storage in memory, which can fail on pictures."""

    place = "memory"
    remedy = "forget"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.written: dict[str, bytes] = {}
        self.threads: set[threading.Thread] = set()
        self.writes = 0

    def write(self, name: str, data: bytes) -> None:
        self.threads.add(threading.current_thread())
        if self.error is not None and name != PROBE:
            raise self.error
        self.writes += 1
        self.written[name] = data

    def has(self, name: str, size: int) -> bool:
        return len(self.written.get(name, b"")) == size


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Callable[..., ThumbnailPipeline]]:
    made: list[ThumbnailPipeline] = []

    def pipeline(store: Storage, originals: Storage | None = None, **settings: Any) -> ThumbnailPipeline:
        if originals is not None:
            settings["CRAWL_KEEP_ORIGINALS"] = "originals"
        made.append(ThumbnailPipeline(config.load(settings), store, originals=originals))
        return made[-1]

    yield pipeline
    for one in made:
        await one.close_spider()


Make = Callable[..., ThumbnailPipeline]


async def test_a_picture_gets_facts_and_a_thumbnail_and_loses_its_body(make: Make) -> None:
    store, body = Memory(), picture(size=(900, 600), quality=77)
    asked = fetched(body)
    asked.said = {**asked.said, "opt_out": ("noai",), "found_on": "https://museum.org/", "alt": "A cow"}
    item = await make(store).process_item(asked)
    assert isinstance(item, ImageEvent)
    assert asked.body == b""
    assert (item.identifier, item.url, item.source, item.status) == ("6f1c", asked.said["url"], "museum", 200)
    assert (item.opt_out, item.found_on, item.alt) == (("noai",), "https://museum.org/", "A cow")
    assert (item.width, item.height, item.compression_quality) == (900, 600, 77)
    assert (item.filesize, item.format) == (len(body), "JPEG")
    assert item.sha256 == hashlib.sha256(body).hexdigest()
    assert item.thumbnail == thumbnail_name("6f1c")
    assert list(store.written) == [item.thumbnail]
    with Image.open(io.BytesIO(store.written[item.thumbnail])) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (640, 427))
    assert threading.main_thread() not in store.threads
    told = json.loads(item.to_json())  # without what is empty
    assert not {"exif", "original", "analysis", "analysis_errors", "tls_failure"} & told.keys()
    assert (told["opt_out"], told["content_type"]) == (["noai"], "image/jpeg")


def test_a_body_is_not_logged_with_its_item() -> None:
    assert "secret" not in repr(fetched(b"secret" * 1000))


async def test_several_sizes_are_stored_the_first_without_its_size_in_the_name(make: Make) -> None:
    store = Memory()
    pipeline = make(store, CRAWL_THUMBNAIL_SIZES="300,100,640", CRAWL_THUMBNAIL_MODE="center_crop")
    item = await pipeline.process_item(fetched(picture(size=(900, 600))))
    first = thumbnail_name("6f1c")
    stem = first.removesuffix(".jpg")
    assert item.thumbnail == first
    assert item.thumbnails == (
        StoredThumbnail(first, 300, 300),
        StoredThumbnail(f"{stem}@100.jpg", 100, 100),
        StoredThumbnail(f"{stem}@640.jpg", 600, 600),
    )
    for each in item.thumbnails:
        with Image.open(io.BytesIO(store.written.pop(each.name))) as thumbnail:
            assert thumbnail.size == (each.width, each.height)
    assert not store.written


async def test_originals_are_kept_once_by_their_digest_and_the_event_says_where(make: Make) -> None:
    store, originals, body = Memory(), Memory(), picture("PNG")
    pipeline = make(store, originals)
    items = [await pipeline.process_item(fetched(body, identifier)) for identifier in ("1", "2")]
    digest = hashlib.sha256(body).hexdigest()
    assert originals.written == {f"{digest[:2]}/{digest}.png": body}
    assert originals.writes == 1
    assert len(store.written) == 2
    told = [json.loads(event.to_json()) for event in items]
    assert [one["original"] for one in told] == [f"{digest[:2]}/{digest}.png"] * 2
    assert (told[0]["compression_quality"], told[0]["opt_out"]) == (None, [])  # what is unknown is null


async def test_what_analyses_say_stands_in_the_event(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "traps"))
    pipeline = make(
        Memory(), CRAWL_ANALYSES="hostile_analyses:size,hostile_analyses:raises", CRAWL_DECODE_TIMEOUT=120
    )
    event = await pipeline.process_item(fetched(picture(size=(900, 600))))
    told = json.loads(event.to_json())
    assert told["analysis"] == {"size": [640, 427]}
    assert told["analysis_errors"] == {"raises": "ValueError: no model"}
    assert told["thumbnails"] == [{"name": thumbnail_name("6f1c"), "width": 640, "height": 427}]


@pytest.mark.parametrize("down", ["thumbnails", "originals"])
async def test_while_either_storage_is_down_pictures_go_back(make: Make, down: str, tmp_path: Path) -> None:
    folders = {"thumbnails": tmp_path / "small", "originals": tmp_path / "large"}
    pipeline = make(*(FolderStorage(folder) for folder in folders.values()))
    assert isinstance(await pipeline.process_item(fetched(picture(), "1")), ImageEvent)
    folders[down].rename(tmp_path / "away")
    item = await pipeline.process_item(fetched(picture(size=(80, 60)), "2"))
    assert isinstance(item, Failure)
    assert item.outcome == STORAGE_UNAVAILABLE
    assert item.reason.startswith(f"{down} cannot be stored in {folders[down]} (FileNotFoundError")
    (tmp_path / "away").rename(folders[down])
    await until_async(lambda: not any(one and one.outage for one in (pipeline.storage, pipeline.originals)))
    assert isinstance(await pipeline.process_item(fetched(picture(size=(80, 60)), "2")), ImageEvent)
    assert len(list(folders["originals"].glob("??/*.jpg"))) == 2


@pytest.mark.parametrize(
    ("body", "reason", "size"),
    [
        (b"", "empty body", None),
        (b"<html>not here any more</html>", "not a picture", None),
        (picture()[:300], "JPEG", None),
        (picture(size=(300, 200))[:-20], "JPEG: image file is truncated", (300, 200)),
        (
            picture("PNG", (1000, 200)),
            "too many pixels: 1000 x 200, CRAWL_MAX_PIXELS is 100000",
            (1000, 200),
        ),
    ],
)
async def test_an_unreadable_picture_is_a_failure_without_retry_that_keeps_what_is_known(
    make: Make, body: bytes, reason: str, size: tuple[int, int] | None
) -> None:
    store = Memory()
    item = await make(store, CRAWL_MAX_PIXELS=100_000).process_item(fetched(body))
    assert isinstance(item, Failure)
    assert (item.outcome, item.status) == (UNREADABLE, 200)
    assert reason in item.reason
    assert (item.facts and (item.facts.width, item.facts.height)) == size
    assert store.written == {}


async def test_a_coded_body_is_decoded_and_kept_without_its_coding_and_a_bomb_is_too_large(make: Make) -> None:
    body, originals = picture(), Memory()
    pipeline = make(Memory(), originals, DOWNLOAD_MAXSIZE=1_000_000)
    coded, bomb = (fetched(gzip.compress(whole)) for whole in (body, bytes(1_000_001)))
    coded.codings = bomb.codings = ("gzip",)
    ready, failure = [await pipeline.process_item(item) for item in (coded, bomb)]
    assert (ready.filesize, ready.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert originals.written == {ready.original: body}
    assert failure.outcome == UNREADABLE
    assert "larger than DOWNLOAD_MAXSIZE (1000000 bytes) without its gzip coding" in failure.reason


async def test_an_error_of_the_storage_is_raised(make: Make) -> None:
    with pytest.raises(OSError, match="No space left"):
        await make(Memory(OSError(28, "No space left on device"))).process_item(fetched(picture()))


@pytest.mark.parametrize(
    "item",
    [
        LinkRotEvent("1", "http://a/", "museum", 404, utc_now(), "http://a/", 0, 1, 0.1),
        Failure(of_status(500), "status 500"),
        {"any": "thing"},
    ],
)
async def test_other_items_pass(make: Make, item: Any) -> None:
    assert await make(Memory()).process_item(item) is item


async def test_a_crawler_gives_the_pipeline_its_settings(tmp_path: Path) -> None:
    names = {"IMAGES_STORE": "out", "CRAWL_KEEP_ORIGINALS": "originals"}
    places = {name: str(tmp_path / folder) for name, folder in names.items()}
    crawler = get_crawler(settings_dict={**places, "CRAWL_DECODE_PROCESSES": 1})
    pipeline = ThumbnailPipeline.from_crawler(crawler)
    item = await pipeline.process_item(fetched(picture()))
    await pipeline.close_spider()
    assert (tmp_path / "out" / item.thumbnail).is_file()
    assert (tmp_path / "originals" / item.original).read_bytes() == picture()
