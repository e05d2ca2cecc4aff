"""The demo's files are what the table of sources says, and varied enough to be worth crawling."""

from __future__ import annotations

import csv
import http.client
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from demo.gallery import Gallery
from demo.sources import SOURCES, UNREADABLE, build, write_seeds

pytestmark = pytest.mark.slow

URLS = {source.name: f"http://127.0.0.1:{9000 + number}" for number, source in enumerate(SOURCES)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "gallery"
    build(root)
    return root


def seeds(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_seed_is_listed_once_and_answered_with_the_expected_status(root: Path, tmp_path: Path) -> None:
    answers: dict[str, Counter[int]] = {}
    with Gallery(root, tmp_path / "log.jsonl") as gallery:
        rows = seeds(write_seeds(root, gallery.urls))
        for source, base_url in gallery.urls.items():
            answers[source] = Counter()
            connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=60)
            for row in rows:
                if row["source"] == source:
                    assert row["url"].startswith(f"{base_url}/")
                    connection.request("GET", urlsplit(row["url"]).path)
                    response = connection.getresponse()
                    response.read()
                    answers[source][response.status] += 1
            connection.close()
    assert len({row["url"] for row in rows}) == len(rows)
    assert answers == {
        source.name: Counter(
            {200: source.pictures + len(source.unreadable), 404: source.missing, 410: source.gone}
        )
        for source in SOURCES
    }
    assert [sum(answers[source.name].values()) for source in SOURCES] == [source.seeds for source in SOURCES]
    ends = [(source.missing, source.gone, source.unreadable) for source in SOURCES]
    assert sum(missing for missing, _, _ in ends) >= 3
    assert sum(gone for _, gone, _ in ends) >= 1
    assert {name for _, _, names in ends for name in names} == set(UNREADABLE)
