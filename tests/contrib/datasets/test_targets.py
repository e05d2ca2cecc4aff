"""`scrapy events FOLDER:parquet` and `FOLDER:webdataset`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from crawlproject.contrib.datasets import targets
from crawlproject.contrib.datasets.event_rows import SCHEMA
from tests.commands.test_events import emit, emit_in
from tests.conftest import Scrapy
from tests.following import following
from tests.test_docs import rows
from tests.waiting import PATIENCE_S, until


def test_a_dataset_is_followed_until_it_is_stopped(
    environment: dict[str, str], redis_url: str, tmp_path: Path, scrapy: Scrapy
) -> None:
    out = tmp_path / "out"

    def rows() -> int:
        return sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet"))

    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0, 50)
        with following(environment, f"{out}/:parquet", "--rows", "20", "--every", "0.5") as follower:
            until(lambda: rows() == 50)
            emit(client, 50, 53)
            until(lambda: rows() == 53)
            follower.send_signal(signal.SIGTERM)
            text, error = follower.communicate(timeout=PATIENCE_S)
        assert (follower.returncode, error, text) == (0, "", f"53 events written to {out}/\n")
        emit(client, 53, 55)
    done = scrapy("events", f"{out}/:parquet", "--json")
    assert json.loads(done.stdout) == {"events": 2, "skipped": 0}


def test_each_shard_has_a_folder(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    several: Any = {"CRAWL_SHARDS": "2"}
    with redis.Redis.from_url(redis_url) as client:
        emit_in(client, 0, 0, 2)
        emit_in(client, 1, 1)
    scrapy("events", f"{tmp_path}/out/:parquet", **several)
    rows = pq.read_table(tmp_path / "out").to_pylist()  # its folders are a column
    assert {(row["identifier"], row["shard"]) for row in rows} == {("0", 0), ("2", 0), ("1", 1)}
    scrapy("events", f"{tmp_path}/tars/:webdataset", **several)
    assert sorted(path.name for path in (tmp_path / "tars").iterdir()) == ["shard=00", "shard=01"]
    assert pq.read_metadata(tmp_path / "tars" / "shard=01" / "00000000.parquet").num_rows == 1


def test_a_part_is_no_larger_than_a_shard_keeps(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    environ: Any = {"CRAWL_SHARDS": "2", "CRAWL_STREAM_MAXLEN": "40"}
    done = scrapy("events", f"{tmp_path}/out/:parquet", "--rows", "11", **environ)
    assert done.returncode == 2
    assert "11 rows is more than half of CRAWL_STREAM_MAXLEN, 20 for each of 2 shards" in done.stderr
    with redis.Redis.from_url(redis_url) as client:
        emit_in(client, 1, *range(12))
    scrapy("events", f"{tmp_path}/out/:parquet", **environ)
    parts = sorted((tmp_path / "out" / "shard=01").glob("*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in parts] == [10, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((":parquet",), "expected a place before :parquet"),
        (("out/:csv",), "expected out/:parquet or out/:pages or out/:webdataset"),
        (("out/",), "expected out/:parquet or out/:pages or out/:webdataset"),
        (("x.jsonl", "--rows", "5"), "--rows goes with WHERE:parquet or WHERE:pages or WHERE:webdataset"),
        (("out:parquet", "--caption", "alt"), "--caption goes with WHERE:webdataset"),
        (("out:parquet", "--originals"), "--originals goes with WHERE:webdataset"),
        (("out:parquet", "--keep", "Width:int64"), "--keep Width: a dataset has a column of that name"),
        (("out:webdataset", "--keep", "key"), "--keep key: a dataset has a column of that name"),
        (
            ("out:parquet", "--keep", "size:int"),
            "expected NAME, or NAME:TYPE with one of string, int64, double, bool",
        ),
        (("out:webdataset", "--originals"), "--originals needs the setting CRAWL_KEEP_ORIGINALS"),
        (("out:parquet", "--rows", "600000"), "more than half of CRAWL_STREAM_MAXLEN"),
    ],
)
def test_what_cannot_be_a_dataset_is_refused(
    scrapy: Scrapy, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    done = scrapy("events", *words)
    assert done.returncode == 2
    assert says in done.stderr + done.stdout


def test_what_was_fed_beside_a_seed_becomes_columns(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    fed = [{"a": "x", "b": 1.5, "n": 7, "key": "k"}, {"a": 5, "b": "no number"}, {"a": ["y"]}, None]
    with redis.Redis.from_url(redis_url) as client:
        for number, extra in enumerate(fed):
            event = {"identifier": str(number), "extra": extra}
            client.xadd("crawl:image_metadata_updates", {"event": json.dumps(event)})
    scrapy("events", f"{tmp_path}/out/:parquet", "--keep", "a,b:double,n:int64,key")
    table = pq.read_table(tmp_path / "out")
    assert table.select(["a", "b", "n", "key"]).to_pydict() == {
        "a": ["x", "5", '["y"]', None], "b": [1.5, None, None, None], "n": [7, None, None, None],
        "key": ["k", None, None, None],
    }  # fmt: skip
    assert [str(table.schema.field(name).type) for name in "abn"] == ["string", "double", "int64"]
    done = scrapy("events", f"{tmp_path}/out/:parquet", "--keep", "a")
    assert "was begun with --keep a:string,b:double,n:int64,key:string, not with --keep a:string" in done.stderr


def test_a_caption_that_no_image_has_is_told(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"picture")
    event = {"identifier": "1", "thumbnail": "a/1.jpg", "extra": {"TEXT": "x"}}
    for name, told in (("text", True), ("TEXT", False)):
        with redis.Redis.from_url(redis_url) as client:
            client.xadd("crawl:image_metadata_updates", {"event": json.dumps(event)})
        place = f"{tmp_path}/{name}/:webdataset"
        done = scrapy("events", place, "--caption", name, IMAGES_STORE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert (f"no image has a caption: {name} is no key of its event" in done.stderr) == told


def test_the_columns_are_documented() -> None:
    text = (Path(targets.__file__).parent / "README.md").read_text(encoding="utf-8").split("## Rows\n")[1]
    named = [name for row in rows(text.split("\n## ")[0]) for name in re.findall(r"`(\w+)`", row[0])]
    assert named == SCHEMA.names
