"""Scrapy's own commands that ask for one URL, in a project whose frontier is shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from crawlproject.state.keys import Keys
from demo.gallery import Gallery
from tests.conftest import ROOT
from tests.test_crawl import picture, size_for


@pytest.mark.parametrize("command", ["shell", "fetch"])
def test_one_url_can_be_fetched_by_hand(
    command: str, tmp_path: Path, environment: dict[str, str], redis_url: str
) -> None:
    folder = tmp_path / "sites" / "museum"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(picture(1))
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps([{"source_name": "127.0.0.1", "image_count": size_for(20)}]))
    with Gallery(tmp_path / "sites", tmp_path / "arrivals.jsonl") as gallery:
        url = f"{gallery.urls['museum']}/a.jpg"
        more = ["-c", "print(response.status, len(response.body))"] if command == "shell" else []
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", command, url, *more],
            cwd=ROOT,
            env=environment | {"CRAWL_SOURCES": str(catalogue)},
            capture_output=True,
            timeout=60,
            check=False,
        )
        asked = [arrival["path"] for arrival in gallery.arrivals()]
    assert done.returncode == 0
    body = picture(1)
    said = f"200 {len(body)}\n".encode() if command == "shell" else body
    assert said in done.stdout
    assert asked == ["/robots.txt", "/a.jpg"]
    with redis.Redis.from_url(redis_url) as client:  # nothing was put into the frontier that workers share
        assert client.keys(Keys("crawl", "*").queue_of + "*") == []
