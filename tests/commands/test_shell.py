"""Scrapy's own commands that ask for one URL, in a project whose frontier is shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import redis

from crawlproject.state.keys import Keys
from demo.gallery import Gallery
from tests.conftest import ROOT
from tests.test_crawl import picture, size_for


def test_one_url_can_be_fetched_by_hand(tmp_path: Path, environment: dict[str, str], redis_url: str) -> None:
    folder = tmp_path / "sites" / "museum"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(picture(1))
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps([{"source_name": "127.0.0.1", "image_count": size_for(20)}]))
    with Gallery(tmp_path / "sites", tmp_path / "arrivals.jsonl") as gallery:
        url = f"{gallery.urls['museum']}/a.jpg"
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "fetch", url],
            cwd=ROOT,
            env=environment | {"CRAWL_SOURCES": str(catalogue)},
            capture_output=True,
            timeout=60,
            check=False,
        )
        asked = [arrival["path"] for arrival in gallery.arrivals()]
    assert done.returncode == 0
    assert picture(1) in done.stdout
    assert asked == ["/robots.txt", "/a.jpg"]
    with redis.Redis.from_url(redis_url) as client:  # nothing was put into the frontier that workers share
        assert client.keys(Keys("crawl", "*").queue_of + "*") == []
