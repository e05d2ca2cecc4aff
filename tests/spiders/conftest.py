"""The crawl of pages that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spiders.test_pages import Crawl, crawling


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    with crawling(tmp_path, environment, redis_url) as one:
        yield one
