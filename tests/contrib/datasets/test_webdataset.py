"""Shards of WebDataset: each image with a thumbnail one sample, whatever happens to the one who writes them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
import redis
import webdataset
from PIL import Image
from scrapy.settings import Settings

from crawlproject.contrib.datasets.dataset import Dataset
from crawlproject.contrib.datasets.parquet import ParquetForm
from crawlproject.contrib.datasets.parts import FolderParts, Parts, S3Parts, parts_of
from crawlproject.contrib.datasets.targets import lookup_of
from crawlproject.contrib.datasets.webdataset import WebDatasetForm
from crawlproject.errors import ConfigError, CrawlprojectError, ReaderTaken, StorageDown
from crawlproject.state.client import State
from crawlproject.storage.blobs import original_name
from crawlproject.streams import readers as streams
from tests.sinks.events import KEYS, emit, image, status_of
from tests.sinks.running import die, has_died, let_leases_end, run
from tests.storage.s3_gate import Gate, aws, made_bucket


@pytest.fixture
def bucket(moto: str, tmp_path: Path) -> Any:
    return made_bucket(moto, tmp_path.name.replace("_", "-"))


def uri_of(tmp_path: Path) -> str:
    return f"s3://{tmp_path.name.replace('_', '-')}/shards"


def store(folder: Path, numbers: range) -> str:
    """Store the thumbnails of images, each with its number as its width; return the folder."""
    (folder / "ab").mkdir(parents=True, exist_ok=True)
    for number in numbers:
        Image.new("L", (number + 1, 2)).save(folder / "ab" / f"id.{number}.jpg")
    return str(folder)


def drain(
    client: redis.Redis,
    parts: Parts,
    thumbnails: str,
    samples: int = 4,
    rows: int = 100,
    caption: str | None = "alt",
    column: Literal["thumbnail", "original"] = "thumbnail",
) -> WebDatasetForm:
    form = WebDatasetForm(parts, lookup_of(thumbnails, Settings()), rows, samples, caption, column)
    write(client, parts, form, {"caption": caption, "pictures": f"{column}s"})
    return form


def write(client: redis.Redis, parts: Parts, form: WebDatasetForm, about: dict[str, Any] | None = None) -> None:
    async def drained(state: State) -> None:
        one = Dataset(state, parts, form, every=600, about=about)
        async with one.opened():
            await one.drain()
            await one.commit()

    run(client, drained)


def samples_of(folder: Path) -> list[dict[str, Any]]:
    """Return the samples of all shards, as webdataset reads them; each shard is equal to its Parquet file."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.tar")):
        samples = list(webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False))
        rows = pq.read_table(path.with_suffix(".parquet")).to_pylist()
        expected = [(row["key"], row["identifier"]) for row in rows if row["key"] is not None]
        assert [(one["__key__"], json.loads(one["json"])["identifier"]) for one in samples] == expected
        found += samples
    return found


def rows_of(folder: Path) -> list[int]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return sorted(int(name[3:]) for table in tables for name in table["identifier"].to_pylist())


def of_samples(samples: list[dict[str, Any]]) -> list[int]:
    return sorted(int(json.loads(sample["json"])["identifier"][3:]) for sample in samples)


def ok(numbers: range) -> list[int]:
    return [number for number in numbers if status_of(number) == "ok"]


def test_each_image_is_a_sample_and_each_event_a_row(client: redis.Redis, tmp_path: Path) -> None:
    thumbnails, out = store(tmp_path / "thumbs", range(18)), tmp_path / "out"
    emit(client, range(18))
    drain(client, FolderParts(out), thumbnails)
    samples = samples_of(out)
    assert of_samples(samples) == ok(range(18))
    assert rows_of(out) == list(range(18))
    assert [sample["__key__"] for sample in samples[:5]] == [
        "0000000000000", "0000000000001", "0000000000002", "0000000000003", "0000000100000"
    ]  # fmt: skip
    for sample in samples:
        facts = json.loads(sample["json"])
        number = int(facts["identifier"][3:])
        assert Image.open(io.BytesIO(sample["jpg"])).size == (number + 1, 2)
        assert (facts["thumbnail_width"], facts["thumbnail_height"]) == (number + 1, 2)
        assert sample["txt"].decode() == facts["caption"] == f"馬 {number}"
        assert (facts["exif"], facts["status"], len(facts["sha256"])) == ({"0x13b": "Ansel"}, "ok", 64)
    with tarfile.open(out / "00000000.tar") as tar:
        assert {member.name.partition(".")[0] for member in tar} == {
            sample["__key__"] for sample in samples[:4]
        }  # the dots of identifiers are none of keys


def test_keys_of_several_shards_of_a_crawl_differ(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, range(2))
    parts = FolderParts(tmp_path / "out")
    look_up = lookup_of(store(tmp_path / "thumbs", range(2)), Settings())
    write(client, parts, WebDatasetForm(parts, look_up, 100, 100, prefix="03"))
    assert [sample["__key__"] for sample in samples_of(tmp_path / "out")] == ["030000000000000", "030000000000001"]


def test_rows_bound_a_shard_of_few_samples(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, range(2, 200, 6))  # all of them gone
    drain(client, FolderParts(tmp_path / "out"), store(tmp_path / "thumbs", range(0)), rows=10)
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert sizes == [10, 10, 10, 3]
    assert samples_of(tmp_path / "out") == []


def originals(folder: Path, client: redis.Redis, bodies: Sequence[tuple[str, bytes]]) -> str:
    """Store originals as the crawl does, each once, and emit an event of each; return the folder."""
    for number, (form, body) in enumerate(bodies):
        digest = hashlib.sha256(body).hexdigest()
        name = original_name(digest, form)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
        facts = {"original": name, "sha256": digest, "filesize": len(body), "format": form}
        client.xadd(KEYS.image_events, {"event": json.dumps(image(number, **facts))})
    return str(folder)


def test_a_sample_has_the_original_as_it_is_stored(client: redis.Redis, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bodies = [("JPEG", b"first"), ("PNG", b"second"), ("JPEG", b"first"), ("PSD", b"8BPS")]
    kept = originals(tmp_path / "kept", client, bodies)
    emit(client, range(8, 10))  # an image whose original was not kept, and one that is gone
    form = drain(client, FolderParts(out), kept, samples=100, column="original")
    samples = samples_of(out)
    endings = {"JPEG": "jpg", "PNG": "png", "PSD": "psd"}
    assert [(sample[endings[kind]], sample["txt"]) for sample, (kind, _) in zip(samples, bodies, strict=True)] == [
        (body, f"馬 {number}".encode()) for number, (_, body) in enumerate(bodies)
    ]
    assert all(
        json.loads(sample["json"])["sha256"] == hashlib.sha256(body).hexdigest()
        for sample, (_, body) in zip(samples, bodies, strict=True)
    )
    assert rows_of(out) == [0, 1, 2, 3, 8, 9]
    assert form.missing == 1


def test_a_store_that_is_away_loses_nothing(client: redis.Redis, tmp_path: Path) -> None:
    thumbnails, away = tmp_path / "thumbs", tmp_path / "away"
    store(thumbnails, range(6))
    emit(client, range(6))
    thumbnails.rename(away)
    with pytest.raises(StorageDown, match="IMAGES_STORE"):
        drain(client, FolderParts(tmp_path / "out"), str(thumbnails))
    away.rename(thumbnails)
    drain(client, FolderParts(tmp_path / "out"), str(thumbnails))
    assert of_samples(samples_of(tmp_path / "out")) == ok(range(6))


def test_a_picture_that_cannot_be_read_stops_it_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").mkdir()
    with pytest.raises(ConfigError, match=r"IMAGES_STORE=.*: 0.jpg cannot be read \(IsADirectoryError.*remove it"):
        lookup_of(str(tmp_path), Settings())("0.jpg")


def test_a_store_that_boto_rejects_is_named_with_its_setting() -> None:
    with pytest.raises(ConfigError, match=r"IMAGES_STORE=s3://b/x/ cannot be used: ValueError: Invalid endpoint"):
        lookup_of("s3://b/x/", aws("notaurl"))


def test_without_boto_the_message_begins_with_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigError, match=r"^s3:// needs boto3 .*: pip install 'crawlproject\[s3\]'$"):
        parts_of("s3://b/x/", Settings())


def test_in_s3_what_is_missing_is_told_from_what_is_forbidden(tmp_path: Path, bucket: Any, gate: Gate) -> None:
    look_up = lookup_of(f"s3://{bucket.name}/thumbs/", aws(gate.url))
    assert look_up("c.jpg") is None
    gate.forbidden = ("/b.jpg",)
    with pytest.raises(ConfigError, match="AccessDenied"):
        look_up("b.jpg")


def test_another_caption_is_another_dataset(client: redis.Redis, tmp_path: Path) -> None:
    thumbnails = store(tmp_path / "thumbs", range(6))
    drain(client, FolderParts(tmp_path / "out"), thumbnails)
    with pytest.raises(CrawlprojectError, match=r"/out was begun with --caption alt, not with --caption title"):
        drain(client, FolderParts(tmp_path / "out"), thumbnails, caption="title")
    with pytest.raises(CrawlprojectError, match=r"/out was begun with --caption alt, not without --caption"):
        drain(client, FolderParts(tmp_path / "out"), thumbnails, caption=None)


@pytest.mark.parametrize("whole", ["tar", "parquet"])
def test_killed_at_each_moment_of_a_commit_in_s3(
    redis_url: str, client: redis.Redis, tmp_path: Path, bucket: Any, moto: str, whole: str
) -> None:
    thumbnails = store(tmp_path / "thumbs", range(36))
    emit(client, range(12))

    class Deadly(S3Parts):
        def _put(self, name: str, **condition: str) -> None:
            super()._put(name, **condition)
            if name.endswith(whole) and name[0] == "0":
                die()

    uri = uri_of(tmp_path)
    assert has_died(redis_url, lambda own: drain(own, Deadly(uri, aws(moto)), thumbnails, samples=100))
    let_leases_end(client)
    emit(client, range(12, 36))
    drain(client, parts_of(uri, aws(moto)), thumbnails, samples=100)
    out = downloaded(bucket, tmp_path)
    assert of_samples(samples_of(out)) == ok(range(36))
    assert rows_of(out) == list(range(36))
    assert pq.read_metadata(out / "00000000.parquet").num_rows == (0 if whole == "tar" else 12)


def downloaded(bucket: Any, tmp_path: Path) -> Path:
    out = tmp_path / "downloaded"
    out.mkdir()
    for found in bucket.objects.all():
        bucket.download_file(found.key, str(out / Path(found.key).name))
    return out


async def test_who_hung_between_the_files_of_a_part_in_s3_does_not_complete_it(
    state: State, client: redis.Redis, tmp_path: Path, bucket: Any, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_RENEW_S", 600.0)  # as it hangs
    thumbnails = lookup_of(store(tmp_path / "thumbs", range(6)), Settings())

    class Hangs(S3Parts):
        def _put(self, name: str, **condition: str) -> None:
            if name.endswith("parquet"):
                asyncio.run_coroutine_threadsafe(go_on(), loop).result()
            super()._put(name, **condition)

    def dataset(parts: S3Parts) -> Dataset:
        return Dataset(state, parts, WebDatasetForm(parts, thumbnails, 100, 100, "alt"), every=600)

    async def go_on() -> None:
        let_leases_end(client)
        second = dataset(S3Parts(uri_of(tmp_path), aws(moto)))
        async with second.opened():
            await second.drain()
            await second.commit()

    loop = asyncio.get_running_loop()
    emit(client, range(6))
    first = dataset(Hangs(uri_of(tmp_path), aws(moto)))
    async with first.opened():
        await first.drain()
        with pytest.raises(ReaderTaken, match="by another process meanwhile"):
            await first.commit()
    out = downloaded(bucket, tmp_path)
    assert of_samples(samples_of(out)) == ok(range(6))
    assert rows_of(out) == list(range(6))
    assert pq.read_metadata(out / "00000000.parquet").num_rows == 0


async def test_s3_that_is_away_is_waited_for_and_an_answer_that_was_lost_is_no_other_process(
    state: State, client: redis.Redis, tmp_path: Path, bucket: Any, gate: Gate
) -> None:
    class LosesAnAnswer(S3Parts):
        is_lost = True

        def _put(self, name: str, **condition: str) -> None:
            super()._put(name, **condition)
            if name.endswith("parquet") and self.is_lost:
                self.is_lost = False
                super()._put(name, **condition)  # as the client tries again

    parts = LosesAnAnswer(uri_of(tmp_path), aws(gate.url))
    emit(client, range(6))
    one = Dataset(state, parts, ParquetForm(parts, 6), every=600)
    async with one.opened():
        gate.mode = 503
        with pytest.raises(StorageDown, match="at the moment"):
            await one.drain()
        gate.mode = "pass"
        await one.drain()
        await one.commit()
        assert not parts.is_lost
    assert rows_of(downloaded(bucket, tmp_path)) == list(range(6))
