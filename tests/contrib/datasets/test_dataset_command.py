"""`scrapy dataset`: from a list to a dataset, whatever happens to it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from demo.gallery import Gallery, set_faults
from tests.conftest import ROOT, Scrapy
from tests.test_crawl import Crawl
from tests.waiting import PATIENCE_S, until

COUNT = 120


class Making:
    """A list of pictures of a source with this rate, and the command."""

    def __init__(self, crawl: Crawl, folder: Path, rate: float) -> None:
        self.crawl, self.folder, self.out = crawl, folder, folder / "out"
        museum = crawl.source("museum", rate, pictures=COUNT)
        (museum / "bad.jpg").write_bytes(b"<html>")
        set_faults(museum, {"/slow.jpg": {"status": 404}})
        left_out = {"CRAWL_SOURCES", "IMAGES_STORE", "MAX_IDLE_TIME_BEFORE_CLOSE"}
        self.environ = {name: value for name, value in crawl.environ.items() if name not in left_out}
        self.environ |= {"PYTHONPATH": str(ROOT), "SCRAPY_SETTINGS_MODULE": "crawlproject.settings"}
        self.environ["CRAWL_HEARTBEAT_TIMEOUT"] = "3"  # those of workers that are killed come back soon

    def write_list(self) -> list[str]:
        names = [*(f"{number}.jpg" for number in range(COUNT)), "bad.jpg", "slow.jpg"]
        urls = [f"{self.crawl.gallery.urls['museum']}/{name}" for name in names]
        columns: dict[str, list[Any]] = {
            "URL": urls, "TEXT": [f"Picture {name}" for name in names], "WIDTH": [60] * len(names),
            "similarity": [0.5] * len(names), "source": ["museum"] * len(names), "key": names,
        }  # fmt: skip
        pq.write_table(pa.table(columns), self.folder / "list.parquet")
        return urls

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = ["list.parquet", "--to", "out/", "--columns", "caption=TEXT,id=key,similarity", "--workers", "1"]
        words += ["--catalogue", "catalogue.json", *more]
        command = [sys.executable, "-m", "scrapy", "dataset", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            text=True,
        )  # fmt: skip

    def run(self, *more: str) -> tuple[int, str, str]:
        process = self.start(*more)
        said, errors = process.communicate(timeout=120)
        return process.returncode, said, errors

    def workers(self) -> list[str]:
        """Return the processes that crawl for this folder."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                is_worker = b"\0crawl\0images\0" in (folder / "cmdline").read_bytes()
                found += [folder.name] * (is_worker and (folder / "cwd").resolve() == self.folder)
        return found

    def rows(self) -> list[dict[str, Any]]:
        parts = sorted(self.out.glob("*.parquet"))
        return [row for path in parts for row in pq.read_table(path).to_pylist()]


def sizes_in(tars: Sequence[Path]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for path in tars:
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                if member.name.endswith(".jpg"):
                    file = tar.extractfile(member)
                    assert file is not None
                    found[Image.open(io.BytesIO(file.read())).size] += 1
    return found


@pytest.mark.slow
def test_whatever_is_killed_each_url_of_the_list_is_one_row(crawl: Crawl, tmp_path: Path) -> None:
    making = Making(crawl, tmp_path, rate=25)
    options = ("--size", "32", "--crop", "--samples", "20")
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        urls = making.write_list()
        first = making.start(*options)
        until(lambda: len(making.rows()) >= 20)
        assert len(making.workers()) == 1
        first.kill()
        first.communicate()
        until(lambda: not making.workers())  # another dataset here would crawl the same sites
        second = making.start(*options)
        until(lambda: len(making.rows()) >= 60)
        second.send_signal(signal.SIGINT)
        said, errors = second.communicate(timeout=PATIENCE_S)
        if second.returncode:  # else all was done by then
            assert second.returncode == 130, errors
            assert "the same command continues" in said
        status, said, errors = making.run(*options, "--json")
        assert status == 0, errors
        assert making.run(*options)[1].startswith("out/: 122 rows, 120 ok, 1 gone, 1 failed (")  # nothing to do
    summary = json.loads(said)
    assert [summary[name] for name in ("whole", "ok", "gone", "failed")] == [True, COUNT, 1, 1]
    assert summary["reasons"] == {"not a picture in a supported format": 1}
    rows = making.rows()
    assert sorted(row["url"] for row in rows) == sorted(urls)
    assert {row["id"]: row["caption"] for row in rows}["7.jpg"] == "Picture 7.jpg"
    assert {row["similarity"] for row in rows} == {0.5}
    assert "ignored: WIDTH; --columns copies them into the dataset" in errors
    assert sizes_in(sorted(making.out.glob("*.tar"))) == {(32, 32): COUNT}
    assert not list((tmp_path / ".crawl" / "datasets").rglob("*.jpg"))


@pytest.mark.slow
def test_parquet_has_its_images_beside_it_and_a_deleted_dataset_is_made_anew(crawl: Crawl, tmp_path: Path) -> None:
    making = Making(crawl, tmp_path, rate=0.5)
    options = ("--format", "parquet", "--size", "64", "--enlarge", "--rate", "museum=150,nobody=1")
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        making.write_list()
        for _ in range(2):
            status, said, errors = making.run(*options)
            assert (status, said.splitlines()[0].rpartition(" (")[0]) == (
                0,
                "out/: 122 rows, 120 ok, 1 gone, 1 failed",
            ), errors
            assert "note: --rate nobody: no image is of a source of that name" in said
            good = [row for row in making.rows() if row["status"] == "ok"]
            assert {max(row["thumbnail_width"], row["thumbnail_height"]) for row in good} == {64}
            assert all((making.out / "images" / row["thumbnail"]).is_file() for row in good)
            if _ == 0:
                shutil.rmtree(making.out)
    status, _, errors = making.run("--format", "parquet", "--size", "32")
    assert status == 1
    assert "was begun with images 64 keep_ratio_largest enlarged, not with images 32 keep_ratio_largest" in errors
    crawl.redis.flushall()
    status, _, errors = making.run(*options)
    assert status == 1
    assert "has a dataset, whose crawl this Redis does not know" in errors


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("none.parquet --to out", "none.parquet: no such file\n"),
        ("urls.csv --to out --caption TEXT", "urls.csv has no column 'TEXT', only url, alt\n"),
        ("text.parquet --to out", "text.parquet is no Parquet file"),
        ("urls.csv --to out --rate a=5,b", "--rate 'b': expected SOURCE=RPS, from 0.000001 to 100000, as in"),
        ("urls.csv", "expected at least one FILE, and --to FOLDER"),
        ("- --to out", "-: a list is read again when a dataset is continued: name a file"),
        ("pipe --to out", "pipe: a list is read again when a dataset is continued: name a file"),
        ("urls.csv --to out --size 5", "whole numbers from 16 to 2048"),
        ("urls.csv --to out --catalogue none.json", "none.json"),
        ("CRAWL_CONTACT= urls.csv --to out", "CRAWL_CONTACT is not set: give the sites a way"),
        ("CRAWL_SHARDS=2 urls.csv --to out", "CRAWL_SHARDS is for several machines"),
        (
            "SCRAPY_SETTINGS_MODULE=mine urls.csv --to out",
            "this project has no spider images: .* SPIDER_MODULES, or use another folder",
        ),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(
    scrapy: Scrapy, tmp_path: Path, words: str, reason: str
) -> None:
    (tmp_path / "urls.csv").write_text("url,alt\nhttp://127.0.0.1:9/a.jpg,A\n")
    (tmp_path / "text.parquet").write_text("http://127.0.0.1:9/a.jpg\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine.py").write_text("from crawlproject.settings import *\nSPIDER_MODULES = []\n")
    environ: Any = {"SCRAPY_SETTINGS_MODULE": "crawlproject.settings"}
    environ |= dict(re.findall(r"([A-Z_]+)=(\w*)", words))
    if environ["SCRAPY_SETTINGS_MODULE"] == "mine":
        environ["PYTHONPATH"] = f"{ROOT}:{tmp_path}"
    done = scrapy("dataset", *re.sub(r"[A-Z_]+=\w*", "", words).split(), cwd=tmp_path, **environ)
    assert done.returncode in {1, 2}
    assert "Traceback" not in done.stderr
    assert re.search(reason, done.stderr), done.stderr
