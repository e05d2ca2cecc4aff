"""A user of Redis without the rights that a crawl needs. (With no more than these: test_cluster_tls.py.)"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.conftest import Scrapy
from tests.state.servers import OF_CRAWL, Server

AS_USER = f"crawl:{quote(OF_CRAWL, safe='')}@"
pytestmark = pytest.mark.slow


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
