"""A user of Redis who may do what docs/deploy.md says, and no more. (On a cluster: test_cluster_tls.py.)"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.servers import OF_CRAWL, Server, add_user, denied
from tests.test_crawl import Crawl

AS_USER = f"crawl:{quote(OF_CRAWL, safe='')}@"
PICTURES = 10

pytestmark = pytest.mark.slow


def test_a_crawl_on_one_redis_needs_no_more(tmp_path: Path, environment: dict[str, str], scrapy: Scrapy) -> None:
    one = Server(tmp_path)
    add_user(one, on_cluster=False)
    place: Any = {"REDIS_URL": one.url.replace("://", f"://{AS_USER}")}
    crawl = Crawl(tmp_path, environment | place, one.url)
    events = tmp_path / "events.jsonl"
    try:
        crawl.source("museum", 20, PICTURES)
        with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
            crawl.seed("museum", *(f"{number}.jpg" for number in range(PICTURES)))
            crawl.run()
        for command in ("sources", "stats", "halt museum", "resume museum", f"events {events}"):
            assert scrapy(*command.split(), **place).returncode == 0, command
        assert denied(one) == set()
        assert json.loads(scrapy("stats", **place).stdout)["thumbnails"] == PICTURES
    finally:
        crawl.stop()
        one.close()


def test_a_user_without_the_rights_is_told(tmp_path: Path, scrapy: Scrapy) -> None:
    one = Server(tmp_path)
    try:
        one.client.execute_command("ACL", "SETUSER", "crawl", "on", f">{OF_CRAWL}", "~*", "+@read")
        done = scrapy("stats", REDIS_URL=one.url.replace("://", f"://{AS_USER}"))
        assert done.returncode == 1
        assert "no permissions" in done.stderr
        assert OF_CRAWL not in done.stderr
    finally:
        one.close()
