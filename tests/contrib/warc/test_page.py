"""`scrapy index` and `scrapy page`: stored pages, as they came."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crawlproject.contrib.warc.records import Earlier, head, payload_digest
from crawlproject.contrib.warc.segments import index_of
from tests.conftest import ROOT, Scrapy
from tests.contrib.warc.test_index import LATER, segment
from tests.contrib.warc.warc_reading import STARTED, exchange, text
from tests.storage.s3_gate import Gate, aws, made_bucket

HOME = "https://museum.example/"
UNCHANGED = LATER + timedelta(days=1)
NEXT = UNCHANGED + timedelta(days=1)
NASTY = b"<p>\x1b]0;owned\x07\x1b[2J\xc2\x9b31m na\xc3\xafve</p>\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a page four times: another one, unchanged (304), equal."""
    folder = tmp_path / "store"
    folder.mkdir()
    earlier = Earlier(LATER, payload_digest(text(2)))
    one: dict[str, Any] = {
        "url": HOME,
        "response_head": head(b"HTTP/1.1 200 OK", [(b"Content-Type", b"text/html"), (b"X-A", b"\xe4")]),
    }
    segment(folder, 1, [exchange(1, **one), exchange(5, NASTY)])
    segment(folder, 2, [exchange(2, **one, fetched_at=LATER)])
    unchanged: dict[str, Any] = {
        "url": HOME,
        "earlier": earlier,
        "response_head": head(b"HTTP/1.1 304 Not Modified", []),
    }
    segment(folder, 3, [exchange(2, b"", **unchanged, fetched_at=UNCHANGED, not_modified=True)])
    segment(folder, 4, [exchange(2, **one, earlier=earlier, fetched_at=NEXT)])
    return folder


def printed(scrapy: Scrapy, *args: str, note: str = "", **environ: Any) -> str:
    done = scrapy("page", *args, **environ)
    assert (done.returncode, done.stderr) == (0, note)
    return done.stdout


def refused(scrapy: Scrapy, *args: str, **environ: Any) -> str:
    done = scrapy(*args, **environ)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_page_is_printed_as_it_was_at_any_time(scrapy: Scrapy, store: Path) -> None:
    environ: dict[str, Any] = {"CRAWL_PAGES_STORE": str(store)}
    done = scrapy("index", **environ)
    assert done.stdout == f"{store}: 4 files in index.cdxj, 4 of them indexed now\n"
    assert json.loads(scrapy("index", "--json", str(store)).stdout) == {"files": 4, "indexed": 0}
    assert printed(scrapy, HOME, **environ).encode() == text(2)
    assert printed(scrapy, HOME, str(store), "--at", STARTED.isoformat()).encode() == text(1)
    note = f"note: this is {HOME}, stored at 20261122103000\n"
    assert printed(scrapy, HOME, "--at", "2020", note=note, **environ).encode() == text(1)
    assert printed(scrapy, HOME, "--at", "2026-11-23", **environ).encode() == text(2)
    unchanged = printed(scrapy, HOME, "--at", "20261124110000", "--headers", **environ)
    assert unchanged.splitlines() == ["HTTP/1.1 304 Not Modified", ""]
    said = json.loads(printed(scrapy, HOME, "--json", **environ))
    assert [said["mime"], said["time"], len(said["times"])] == ["warc/revisit", "20261125103000", 4]
    assert said["body"]["time"] == "20261123103000"
    assert (store / said["body"]["filename"]).read_bytes()[int(said["body"]["offset"]) :].startswith(b"\x1f\x8b")


def test_a_page_is_saved_byte_for_byte(scrapy: Scrapy, store: Path, tmp_path: Path) -> None:
    scrapy("index", str(store))
    file = tmp_path / "page.html"
    assert printed(scrapy, exchange(5).url, str(store), "-o", str(file)) == ""
    assert file.read_bytes() == NASTY
    printed(scrapy, HOME, str(store), "--headers", "--output", str(file))
    assert file.read_bytes() == b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-A: \xe4\r\n\r\n"
    done = scrapy("page", HOME, str(store), "-o", str(tmp_path))
    assert (done.returncode, "--output: [Errno 21] Is a directory" in done.stderr) == (2, True)


def test_other_spellings_of_a_url_find_its_page(scrapy: Scrapy, store: Path) -> None:
    scrapy("index", str(store))
    for url in ("museum.example", "http://www.Museum.example"):
        assert printed(
            scrapy, url, str(store), note=f"note: this is {HOME}, stored at 20261125103000\n"
        ).encode() == text(2)


def test_a_page_moves_no_cursor_of_a_terminal(store: Path, environment: dict[str, str], scrapy: Scrapy) -> None:
    scrapy("index", str(store))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "scrapy", "page", exchange(5).url, str(store)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=theirs, timeout=120, check=False)
    os.close(theirs)
    said = os.read(ours, 10_000)
    os.close(ours)
    assert done.returncode == 0
    assert said.decode().splitlines()[0] == "<p>?]0;owned??[2J?31m naïve</p>"


# What is wrong


def test_what_is_not_there_is_said(scrapy: Scrapy, store: Path, tmp_path: Path) -> None:
    assert "no store is named: give a FOLDER or s3://bucket/prefix/, or set CRAWL_PAGES_STORE" in refused(
        scrapy, "page", HOME
    )
    assert f"{HOME} is not stored in {store}; 4 of its files have no index yet: run scrapy index" in refused(
        scrapy, "page", HOME, str(store)
    )
    scrapy("index", str(store))
    assert "pages in a file that a worker still writes cannot be found yet" in refused(
        scrapy, "page", HOME + "x", str(store)
    )
    for command in (["page", HOME], ["index"]):
        assert "/away cannot be used (FileNotFoundError" in refused(scrapy, *command, str(tmp_path / "away"))
    (tmp_path / "empty").mkdir()
    for command in (["page", HOME], ["index"]):
        assert "no closed WARC files of pages are in" in refused(scrapy, *command, str(tmp_path / "empty"))
    for wrong in (["page", HOME, "ftp://a/"], ["index", "s3://a"], ["page", HOME, "--at", "noon"], ["page"]):
        done = scrapy(*wrong)
        assert (done.returncode, "expected" in done.stderr) == (2, True)


def test_a_file_that_is_gone_or_damaged_is_named(scrapy: Scrapy, store: Path) -> None:
    scrapy("index", str(store))
    first, second, _, last = sorted(store.glob("*.warc.gz"))
    data = bytearray(first.read_bytes())
    data[400:500] = bytes(100)
    first.write_bytes(data)
    assert f"of {first.name} cannot be read: the file is damaged" in refused(
        scrapy, "page", HOME, str(store), "--at", "2026-11-22"
    )
    second.unlink()
    assert f"{second.name} is in the index, and no longer in {store}: bring it back" in refused(
        scrapy, "page", HOME, str(store)
    )
    scrapy("index", str(store))
    assert "unchanged, and the record of 2026-11-23T10:30:00.123456Z, which has its body, is not in" in refused(
        scrapy, "page", HOME, str(store)
    )
    assert scrapy("page", HOME, str(store), "--headers", "--output", os.devnull).returncode == 0
    last.write_bytes(first.read_bytes())  # the index of another file
    assert f"remove {index_of(last.name)} and run" in refused(scrapy, "page", HOME, str(store))


def test_a_bucket_that_is_away_is_said(gate: Gate, scrapy: Scrapy, store: Path) -> None:
    name = f"pages-{os.urandom(4).hex()}"
    bucket = made_bucket(f"http://{gate.target}", name)
    for file in store.glob("*.warc.gz"):
        bucket.upload_file(str(file), file.name)
    environ = {key: value for key, value in aws(gate.url).items() if key.startswith("AWS_") and value}
    where = f"s3://{name}/"
    assert scrapy("index", where, **environ).returncode == 0
    assert printed(scrapy, HOME, where, **environ).encode() == text(2)
    gate.mode = 503
    for command in (["page", HOME], ["index"]):
        said = refused(scrapy, *command, where, **environ)
        assert f"{where} cannot be used (ClientError" in said
        assert "S3CRET" not in said
