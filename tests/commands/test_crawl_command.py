"""`scrapy crawl`: what would make a crawl fail is said before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Scrapy

TRAPS = str(Path(__file__).parents[1] / "traps")


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"CRAWL_CONTACT": ""}, "CRAWL_CONTACT is not set: give the sites a way to reach you, such as "),
        ({"CRAWL_FORMATS": "JPEG,BPG"}, "CRAWL_FORMATS='JPEG,BPG' must be formats, separated by commas, of JPEG"),
        ({"CRAWL_SOURCES": "{tmp}/bad.json"}, "CRAWL_SOURCES={tmp}/bad.json: none of the 2 rows "),
        ({"REDIS_URL": "unix:///no.sock?password=secret"}, "Redis at unix:///no.sock does not answer ("),
        ({"IMAGES_STORE": "{tmp}/bad.json/x"}, "IMAGES_STORE={tmp}/bad.json/x cannot be used: NotADirectory"),
        (
            {"IMAGES_STORE": "{tmp}/store", "CRAWL_KEEP_ORIGINALS": "{tmp}/store/"},
            "CRAWL_KEEP_ORIGINALS is the same place as IMAGES_STORE: name another one",
        ),
        (
            {"CRAWL_KEEP_ORIGINALS": "s3://bucket/", "PYTHONPATH": "{tmp}/without"},
            "CRAWL_KEEP_ORIGINALS=s3://bucket/ cannot be used: s3:// needs boto3 (",
        ),
        (
            {"CRAWL_ANALYSES": "crawlproject.models:phish"},
            "CRAWL_ANALYSES: crawlproject.models:phish cannot be loaded: AttributeError: module ",
        ),
        (
            {"CRAWL_ANALYSES": "hostile_analyses:size,hostile_analyses:raises", "PYTHONPATH": TRAPS},
            "CRAWL_ANALYSES fails on a plain picture: raises: ValueError: no",
        ),
    ],
)
def test_a_crawl_that_cannot_be_is_refused_in_a_sentence(
    scrapy: Scrapy, tmp_path: Path, environ: dict[str, str], sentence: str
) -> None:
    (tmp_path / "bad.json").write_text('[{"source_name": "a", "image_count": -1}, {"source_name": "b"}]')
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "boto3.py").write_text("raise ImportError\n")
    given: dict[str, Any] = {name: value.format(tmp=tmp_path) for name, value in environ.items()}
    done = scrapy("crawl", "images", **given)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("scrapy crawl: ")]
    assert len(said) == 1
    assert said[0].startswith(f"scrapy crawl: {sentence.format(tmp=tmp_path)}")
    assert "Spider opened" not in done.stderr
    assert "Versions:" not in done.stderr


def test_an_unknown_spider_is_reported(scrapy: Scrapy) -> None:
    done = scrapy("crawl", "imagse")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "scrapy crawl: unknown spider 'imagse': expected one of images, pages"
    assert "Traceback" not in done.stderr
    assert scrapy("crawl").returncode == 2
