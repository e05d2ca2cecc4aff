"""The log: for people and for machines, with its subjects and without secrets."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from scrapy import Request

from crawlproject.logs import JsonFormatter, SharedFileHandler, TextFormatter
from crawlproject.models import IDENTIFIER, SOURCE
from crawlproject.storage.blobs import thumbnail_name
from demo.gallery import Fault, Gallery, set_faults
from tests.test_crawl import Crawl

SECRET = "S3CRET/key+x"
REQUEST = Request("http://museum.org/1.jpg", meta={SOURCE: "museum", IDENTIFIER: "b-1\nFORGED"})


def record(message: str, *args: Any, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, message, args, None, extra=extra)


def test_a_line_about_a_request_names_source_and_identifier() -> None:
    text = TextFormatter("%(levelname)s: %(message)s")
    assert text.format(record("Slow", request=REQUEST)) == "INFO: Slow [source=museum identifier=b-1?FORGED]"
    assert text.format(record("%(request)s", {"request": REQUEST})) == (
        "INFO: <GET http://museum.org/1.jpg> [source=museum identifier=b-1?FORGED]"
    )
    assert text.format(record("Source museum: open", source="museum")) == "INFO: Source museum: open"
    line = json.loads(JsonFormatter().format(record("Slow", request=REQUEST)))
    assert (line["source"], line["identifier"], line["message"]) == ("museum", "b-1\nFORGED", "Slow")
    line = json.loads(JsonFormatter().format(record("Source museum: open", source="museum")))
    assert line["source"] == "museum"
    assert "identifier" not in line


def test_processes_that_share_a_log_lose_no_line_when_one_of_them_renames_it(tmp_path: Path) -> None:
    handlers = [SharedFileHandler(tmp_path / "images.log", maxBytes=2_000, backupCount=5) for _ in range(8)]
    written = [f"line {number} {'x' * 80}" for number in range(80)]  # in less than four files
    for number, line in enumerate(written):
        handlers[number % 8].emit(record(line))
    for handler in handlers:
        handler.close()
    found = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted(found) == sorted(written)
    assert len(list(tmp_path.iterdir())) <= 6


def test_json_is_json_from_the_first_line_to_the_last(crawl: Crawl) -> None:
    log = crawl.folder / "crawl.log"
    # What succeeds, fails, is too large, moves, and cannot be stored; as talkative as can be.
    photos = crawl.source("photos", 100, pictures=4)
    (photos / "huge.jpg").write_bytes(bytes(300_000))
    faults: dict[str, Fault] = {
        "/moved.jpg": {"status": 301, "headers": {"Location": "/0.jpg"}},
        "/busy.jpg": {"status": 429, "headers": {"Retry-After": "2"}, "times": 1},
        "/slow.jpg": {"delay": 5},
    }
    set_faults(photos, faults)
    (crawl.folder / "thumbnails").mkdir()
    (crawl.folder / "thumbnails" / thumbnail_name("photos-3.jpg")[:2]).write_text("in the way")
    crawl.options = ["-L", "DEBUG", "-s", f"AWS_SECRET_ACCESS_KEY={SECRET}", "--logfile", str(log)]
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        names = [f"{n}.jpg" for n in range(4)]
        crawl.seed("photos", *names, "huge.jpg", "moved.jpg", "busy.jpg", "slow.jpg")
        settings = {"DOWNLOAD_MAXSIZE": "200000", "DOWNLOAD_TIMEOUT": "1", "CRAWL_RETRY_DELAY": "0.1"}
        crawl.run(1, CRAWL_LOG_FORMAT="json", **settings)
    assert crawl.log() == ""  # all of it went into the file
    text = log.read_text()
    assert SECRET not in text
    assert "'AWS_SECRET_ACCESS_KEY': ***" in text.replace("\\n", "\n")
    assert "JFIF" not in text
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert any("Scrapy 2." in line["message"] for line in lines[:3])
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    about = [line for line in lines if "/photos-" in line["message"] or "<GET http" in line["message"]]
    assert len(about) >= 8
    assert [line for line in about if line.get("source") != "photos"] == []
    named = {line["identifier"] for line in about if "robots.txt" not in line["message"]}
    assert {"photos-0.jpg", "photos-moved.jpg", "photos-busy.jpg"} <= named
    failed = next(line for line in lines if line["message"].startswith("Error processing FetchedImage"))
    assert (failed["identifier"], failed["level"]) == ("photos-3.jpg", "ERROR")
    assert "Traceback" in failed["exception"]
    assert not [line for line in lines if "Scraped" in line["message"] or "FetchedImage(" in line["message"]]
