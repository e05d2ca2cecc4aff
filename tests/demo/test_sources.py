"""The demo's files are what the table of sources says, and varied enough to be worth crawling."""

from __future__ import annotations

import csv
import hashlib
import http.client
import json
import uuid
from collections import Counter
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError, features

from demo import pictures
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


def test_the_seed_list_is_tab_separated_with_stable_identifiers(root: Path) -> None:
    path = write_seeds(root, URLS)
    assert path == root / SEEDS
    assert path.read_text(encoding="utf-8").splitlines()[0] == "identifier\turl\tsource"
    before = seeds(path)
    assert len({uuid.UUID(row["identifier"]) for row in before}) == len(before)
    after = seeds(write_seeds(root, {source: url.replace(":9", ":8") for source, url in URLS.items()}))
    assert [row["identifier"] for row in after] == [row["identifier"] for row in before]
    assert [row["url"] for row in after] != [row["url"] for row in before]


def test_building_again_makes_the_same_files(root: Path) -> None:
    before = digests(root)
    write_seeds(root, URLS)
    (root / SOURCES[0].name / "stray.jpg").write_bytes(b"left by an earlier run")
    build(root)
    assert digests(root) == before
    assert not (root / SEEDS).exists()
    assert len(set(before.values())) == len(before), "no two pictures are the same"


def test_every_picture_opens_and_the_pictures_vary(root: Path) -> None:
    formats: Counter[str | None] = Counter()
    seen: set[str] = set()
    tables: set[str] = set()
    longest: list[int] = []
    for name, path in files(root).items():
        if path.name in UNREADABLE:
            continue
        with Image.open(path) as picture:
            picture.load()
            formats[picture.format] += 1
            longest.append(max(picture.size))
            seen.add(f"{picture.format} {picture.mode}")
            seen |= {key for key in ("progressive", "transparency") if key in picture.info}
            if getattr(picture, "is_animated", False):
                seen.add("animated")
            if picture.format == "JPEG":
                tables.add(str(picture.quantization))  # type: ignore[attr-defined]
            exif = picture.getexif()
            if {ExifTags.Base.Artist, ExifTags.Base.Copyright, ExifTags.Base.Orientation} <= set(exif):
                seen.add(f"{picture.format} with EXIF")
            if exif.get_ifd(ExifTags.IFD.GPSInfo):
                seen.add(f"{picture.format} with GPS")
            assert picture.format is not None
            assert path.suffix[1:3].upper() == picture.format[:2], name
    assert set(formats) >= {"JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"}
    assert "AVIF" in formats or not features.check("avif")
    assert min(formats.values()) >= 10
    assert seen >= {
        *("JPEG RGB", "JPEG L", "JPEG CMYK", "PNG RGBA", "PNG P", "PNG I;16", "WEBP RGB", "WEBP RGBA"),
        *("progressive", "transparency", "animated", "JPEG with EXIF", "JPEG with GPS", "TIFF with EXIF"),
    }
    assert len(tables) > 20, "JPEGs of many qualities"
    assert min(longest) >= 200
    assert min(longest) < 300
    assert 1600 < max(longest) <= 2000


def test_the_orientation_tag_and_the_stored_pixels_agree() -> None:
    upright = Image.new("RGB", (90, 60), "white")
    upright.paste("red", (0, 0, 30, 20))
    orientations: set[int] = set()
    rng = Random(1)
    for _ in range(80):
        kind = pictures.EXIF_JPEG
        with Image.open(BytesIO(kind.encode(upright, rng))) as stored:
            orientations.add(stored.getexif()[ExifTags.Base.Orientation])
            shown = ImageOps.exif_transpose(stored)
        assert shown.size == upright.size
        red, green, blue = shown.crop((10, 5, 20, 15)).resize((1, 1)).tobytes()
        assert red > 200
        assert max(green, blue) < 60
    assert orientations == set(range(1, 9))


def test_the_truncated_picture_has_a_header_but_no_end(root: Path) -> None:
    (path,) = root.glob("*/truncated.jpg")
    with Image.open(path) as picture:
        assert picture.format == "JPEG"
        with pytest.raises(OSError, match="truncated"):
            picture.load()


def test_the_page_is_not_a_picture(root: Path) -> None:
    (path,) = root.glob("*/not-a-picture.jpg")
    assert b"<html>" in path.read_bytes()
    with pytest.raises(UnidentifiedImageError):
        Image.open(path)


def test_the_bomb_is_small_and_valid_and_far_too_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = root.glob("*/bomb.png")
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 89_478_485)  # Pillow's own default
    with pytest.raises(Image.DecompressionBombError):
        Image.open(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with Image.open(path) as picture:
        assert picture.width * picture.height > 100_000_000
        picture.load()
        assert picture.getextrema() == (0, 0)
