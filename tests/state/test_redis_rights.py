"""A user of Redis who may do what docs/deploy.md says, and no more: on one Redis, and where a crawl is divided."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.servers import OF_CRAWL, Cluster, Server, add_user, denied
from tests.test_crawl import Crawl

AS_USER = f"crawl:{quote(OF_CRAWL, safe='')}@"
PICTURES = 10

pytestmark = pytest.mark.slow


def test_a_crawl_on_one_redis_is_divided_by_a_user(
    tmp_path: Path, cluster: Cluster, cluster_url: str, environment: dict[str, str], scrapy: Scrapy
) -> None:
    one = Server(tmp_path)
    add_user(one, on_cluster=False)
    add_user(*cluster.nodes)
    before: dict[str, Any] = {"REDIS_URL": one.url.replace("://", f"://{AS_USER}")}
    after: dict[str, Any] = {
        "REDIS_URL": cluster_url.replace("://", f"://{AS_USER}"),
        "CRAWL_SHARDS": "4",
    }
    crawl = Crawl(tmp_path, environment | before, one.url)
    events = tmp_path / "events.jsonl"
    try:
        crawl.source("museum", 20, PICTURES)
        with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
            crawl.seed("museum", *(f"{number}.jpg" for number in range(PICTURES)))
            crawl.run()
        for command in ("sources", "stats", "halt museum", "resume museum", f"events {events}"):
            assert scrapy(*command.split(), **before).returncode == 0, command
        assert denied(one) == set()
        time.sleep(6)  # the pulse of who has led

        divide = ("reshard", "--to", "4", "--on", after["REDIS_URL"])
        refused = scrapy(*divide, **before)
        assert refused.returncode == 1
        assert "restore" in refused.stderr
        add_user(*cluster.nodes, more="+restore")
        done = scrapy(*divide, **before)
        assert done.returncode == 0, done.stderr
        assert denied(one, *cluster.nodes) == set()
        counts = json.loads(scrapy("stats", **after).stdout)
        assert counts["thumbnails"] == PICTURES
    finally:
        crawl.stop()
        one.close()
        for node in cluster.nodes:
            node.client.acl_deluser("crawl")


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
