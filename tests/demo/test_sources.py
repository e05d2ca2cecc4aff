"""The demo's files are what the table of sources says, and varied enough to be worth crawling."""

from __future__ import annotations

import csv
import hashlib
import http.client
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from demo.gallery import Gallery
from demo.sources import CATALOGUE, SEEDS, SOURCES, UNREADABLE, build, write_seeds

pytestmark = pytest.mark.slow

URLS = {source.name: f"http://127.0.0.1:{9000 + number}" for number, source in enumerate(SOURCES)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "gallery"
    build(root)
    return root


def files(root: Path) -> dict[str, Path]:
    """Return the sources' files by `<source>/<name>`."""
    return {path.relative_to(root).as_posix(): path for path in sorted(root.glob("*/*"))}


def digests(root: Path) -> dict[str, str]:
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files(root).items()}


def seeds(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def rate(image_count: int) -> float:
    """Return the requests a second that DESIGN.md allows a source of this size (below the maximum)."""
    return 0.2 if image_count <= 5_000 else 0.2 + 199.8 * image_count / 499_995_000


def test_the_catalogue_names_every_source(root: Path) -> None:
    rows = json.loads((root / CATALOGUE).read_text(encoding="utf-8"))
    assert {row["source_name"]: row["image_count"] for row in rows} == {s.name: s.image_count for s in SOURCES}
    assert all(set(row) == {"source_name", "image_count", "display_name", "source_url"} for row in rows)


def test_the_sources_differ_in_rate_and_take_half_a_minute() -> None:
    rates = [rate(source.image_count) for source in SOURCES]
    assert len(rates) >= 4
    assert all(faster / slower > 2 for faster, slower in pairwise(rates))
    # robots.txt comes first, and every request after it waits for the next slot.
    assert max(source.seeds / rate(source.image_count) for source in SOURCES) <= 32


def test_every_seed_is_listed_once_and_answered_with_the_expected_status(root: Path, tmp_path: Path) -> None:
    answers: dict[str, Counter[int]] = {}
    with Gallery(root, tmp_path / "log.jsonl") as gallery:
        rows = seeds(write_seeds(root, gallery.urls))
        for source, base_url in gallery.urls.items():
            answers[source] = Counter()
            connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=5)
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


def test_building_again_makes_the_same_files(root: Path) -> None:
    before = digests(root)
    write_seeds(root, URLS)
    (root / SOURCES[0].name / "stray.jpg").write_bytes(b"left by an earlier run")
    build(root)
    assert digests(root) == before
    assert not (root / SEEDS).exists()
    assert len(set(before.values())) == len(before), "no two pictures are the same"
