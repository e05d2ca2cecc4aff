"""The examples run as examples/README.md says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.redis_servers import free_port
from tests.conftest import ROOT, Scrapy
from tests.waiting import PATIENCE_S, until

EXAMPLES = ROOT / "examples"


class Museums:
    """The sites of examples/gallery.py, of ten pictures each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "museums", free_port()
        command = [
            sys.executable,
            str(EXAMPLES / "gallery.py"),
            str(self.folder),
            "--count",
            "10",
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(command, stdout=(folder / "gallery.log").open("wb"))
        until(lambda: "30 images" in (folder / "gallery.log").read_text())


@pytest.fixture
def museums(tmp_path: Path) -> Iterator[Museums]:
    one = Museums(tmp_path)
    yield one
    one.process.terminate()
    one.process.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_dataset_of_the_museums_is_read_by_the_notebook(
    scrapy: Scrapy, museums: Museums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("crawlproject.contrib.datasets.plugin")
    settings: Any = {
        "CRAWL_SOURCES": str(museums.folder / "sources.json"),
        "IMAGES_STORE": str(tmp_path / "thumbnails"),
    }
    fed = scrapy("feed", str(museums.folder / "images.parquet"), "--columns", "url=URL,uuid=key", **settings)
    assert fed.returncode == 0, fed.stderr
    crawled = scrapy("crawl", "images", "-s", "MAX_IDLE_TIME_BEFORE_CLOSE=1", **settings)
    assert crawled.returncode == 0, crawled.stderr
    assert scrapy("events", f"{tmp_path}/out:parquet", **settings).returncode == 0

    monkeypatch.setenv("DATASET", str(tmp_path / "out"))
    notebook = nbformat.read(EXAMPLES / "results.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    table = next(one["text/plain"] for one in shown if "megabytes" in one["text/plain"])
    rows = re.findall(r"│ (\w+) +│ +(\d+) │ +(\d+) │ +(\d+) │ +(\d+) │", table)
    assert sorted(rows) == [
        ("citymuseum", "10", "9", "1", "0"),
        ("naturemuseum", "10", "9", "1", "0"),
        ("villagemuseum", "10", "8", "2", "0"),
    ]
    assert len([one for one in shown if "image/png" in one]) == 2


@pytest.mark.slow
def test_the_spider_writes_the_captions_of_two_museums(scrapy: Scrapy, museums: Museums, tmp_path: Path) -> None:
    spider = (EXAMPLES / "own_spider" / "captions.py").read_text(encoding="utf-8")
    (tmp_path / "captions.py").write_text(spider.replace(":8000", f":{museums.port}"), encoding="utf-8")
    done = scrapy(
        *("crawl", "captions", "-s", "SPIDER_MODULES=captions", "-a", f"out={tmp_path}/captions.jsonl"),
        PYTHONPATH=f"{tmp_path}:{ROOT}",
        CRAWL_SOURCES=str(museums.folder / "sources.json"),
    )
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert len({item["url"] for item in items}) == len(items) == 20
    assert items[0]["alt"] == "No. 0"
