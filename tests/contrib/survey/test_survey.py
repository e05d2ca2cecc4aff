"""`scrapy survey`: all that was crawled, from the files that the project itself writes."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import lxml.html
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from crawlproject.contrib.datasets.dataset import Dataset
from crawlproject.contrib.datasets.parquet import PagesForm, ParquetForm
from crawlproject.contrib.datasets.parts import FolderParts
from crawlproject.contrib.survey.events import OPTIONAL, files_of, opened
from crawlproject.contrib.survey.figures import survey
from crawlproject.contrib.survey.page import page
from crawlproject.models import PageEvent
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from tests.conftest import ROOT, Scrapy
from tests.sinks.events import dead_letter, emit, gone
from tests.sinks.running import run
from tests.waiting import PATIENCE_S

KEYS = Keys("crawl", "images")
STATS = {"links_admitted": 721, "links_over_budget": 630, "links_refused": 5, "not_html": {"pdf": 2}, "workers": 1}
FORGED = "\x1b[31mFORGED\x9b2J\u2028FORGED\x85\u202e"


def a_page(path: str, **more: Any) -> dict[str, Any]:
    """Return the event of a page, as the crawl leaves it, without what it has not always."""
    url = f"https://www.museum.example/{path}"
    event = PageEvent(
        url=url, source="museum.example", status=200, statuses=(200,), final_url=url, redirects=0, attempts=1,
        fetch_s=0.1, content_type="text/html", size=9, wire_size=9, digest="ab", title="A page", language="en-GB",
        licence=None, links=4, images=2, depth=1, fetched_at="2026-11-22T06:00:00.000+00:00",
    )  # fmt: skip
    return {name: value for name, value in json.loads(event.to_json()).items() if name not in OPTIONAL} | more


def newer(path: str, size: int, **more: Any) -> dict[str, Any]:
    """Return the event of a page with all that such events can have."""
    links = (
        "https://www.museum.example/b",
        "HTTPS://user@Other.example:443/x?y",
        "https://other.example/z",
        "x:y",
    )
    about = {
        "content_type": "text/html", "size": size, "wire_size": size // 4, "statuses": [301, 200],
        "found_on": "https://www.museum.example/", "discovered_at": "2026-11-22T04:00:00+00:00",
        "outlinks": [{"url": url, "text": "there", "rel": None} for url in links],
    }  # fmt: skip
    return a_page(path, **(about | more))


def rotten(path: str, **more: Any) -> dict[str, Any]:
    """Return the event of a page that is gone."""
    about = {"url": f"https://www.museum.example/{path}", "source": "museum.example", "status": 404}
    return gone(1, spider="pages", **(about | more))


def lines(path: Path, *events: dict[str, Any] | str) -> str:
    """Write a file of JSON lines, and return its name."""
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in events))
    return str(path)


def surveyed(*places: str) -> dict[str, Any]:
    with opened(files_of(places), 1000) as database:
        return survey(database, 20)


def said(table: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in table]


def add(client: redis.Redis, stream: str, *events: dict[str, Any]) -> None:
    for event in events:
        client.xadd(stream, {"event": json.dumps(event)})


def refuse(client: redis.Redis, number: int, reason: str, *, spider: str = "images", **fetch: Any) -> None:
    """Add a dead letter."""
    letter = dead_letter(number, spider=spider, reason=reason, fetch=json.dumps(fetch))
    client.xadd(KEYS.failed_events, letter)  # type: ignore[arg-type]


def write(client: redis.Redis, folder: Path, form: type[ParquetForm] = ParquetForm) -> tuple[str, str]:
    """Have the events written as JSON lines, and as a dataset; return where they are."""

    async def both(state: State) -> None:
        file = EventFile(folder / "results.jsonl", state)
        parts = FolderParts(folder / "out")
        dataset = Dataset(state, parts, form(parts, 4), every=600.0)
        for sink in (file, dataset):
            async with sink.opened():
                await sink.drain()
                await sink.finish()

    run(client, both)
    return str(folder / "results.jsonl"), str(folder / "out")


def test_pages_are_alive_gone_forbidden_or_failed(client: redis.Redis, tmp_path: Path) -> None:
    add(client, KEYS.page_events, newer("a", 8_000), newer("b", 1_000, language="de", depth=2))
    add(client, KEYS.link_rot_events, rotten("c"), rotten("d", status=410))
    for number, (kind, status, reason) in enumerate(
        (
            ("robots", None, "robots.txt: line 2"),
            ("timeout", None, "timeout (after 3 attempts)"),
            (None, None, "lost"),
        ),
    ):
        refuse(client, number, reason, spider="pages", kind=kind, status=status)
    file, _ = write(client, tmp_path)
    made = surveyed(file)
    pages = made["pages"]
    assert (made["events"], made["urls"], made["unreadable"], made["missing"]) == (7, 7, 0, [])
    assert pages["totals"] == {
        "urls": 7, "alive": 2, "gone": 2, "forbidden": 1, "failed": 2, "bytes": 9_000, "sources": 2,
        "sources_alive": 1,
    }  # fmt: skip
    assert {(one["result"], one["outcome"]): one["urls"] for one in pages["results"]} == {
        ("200", "alive"): 2, ("404", "gone"): 1, ("410", "gone"): 1, ("robots", "forbidden"): 1,
        ("timeout", "failed"): 1, ("other", "failed"): 1,
    }  # fmt: skip
    assert said(pages["sources"], "source", "alive", "gone", "forbidden", "failed", "bytes") == [
        ("museum.example", 2, 2, 0, 0, 9_000),
        ("museum", 0, 0, 1, 2, None),
    ]
    assert {one["reason"] for one in pages["reasons"]} == {"robots.txt: line 2", "timeout", "lost"}
    assert said(pages["depths"], "depth", "urls") == [(1, 1), (2, 1)]
    assert said(pages["languages"], "language", "urls", "bytes") == [("de", 1, 1_000), ("en", 1, 8_000)]
    assert said(pages["content_types"], "content_type", "urls") == [("text/html", 2)]
    assert said(pages["ways"], "statuses", "urls") == [("301, 200", 2)]
    assert said(pages["size_classes"], "at_least", "urls") == [(1_000, 1), (8_000, 1)]
    assert said(pages["sizes"], "measure", "urls", "mean", "most", "total") == [
        ("size", 2, 4_500, 8_000, 9_000),
        ("wire_size", 2, 1_125, 2_000, 2_250),
    ]
    assert said(pages["linked_hosts"], "host", "pages", "sources") == [("other.example", 2, 1)]
    assert said(pages["leading_pages"], "page", "pages") == [("https://www.museum.example/", 2)]
    assert said(pages["per_page"], "measure", "mean") == [
        ("links_in_scope", 4), ("outlinks", 4), ("outlinks_elsewhere", 2), ("images", 2),
        ("hours_until_fetched", 2),
    ]  # fmt: skip
    assert made["images"] == {"totals": dict.fromkeys(pages["totals"], 0) | {"bytes": None}}


def test_of_each_url_the_last_event_counts_and_one_that_comes_twice_counts_once(tmp_path: Path) -> None:
    later = {"time": "2026-11-23T00:00:00.000+00:00"}
    file = lines(
        tmp_path / "results.jsonl",
        *(newer("a", 500), newer("a", 500), newer("a", 700, fetched_at="2026-11-22T09:00:00.000+00:00")),
        *(
            newer("b", 900),
            a_page("b", status=304, links=0, images=0, fetched_at=later["time"], revisit="unchanged"),
        ),
        *(newer("c", 900), rotten("c", **later)),
        *(rotten("d", time="2026-11-21T00:00:00.000+00:00"), newer("d", 800)),
    )
    made = surveyed(file)
    assert (made["events"], made["urls"]) == (9, 4)
    totals = made["pages"]["totals"]
    assert (totals["alive"], totals["gone"], totals["bytes"]) == (3, 1, 700 + 900 + 800)
    assert said(made["pages"]["languages"], "language", "urls") == [("en", 3)]


def test_percentiles_are_those_of_all_sizes(tmp_path: Path) -> None:
    file = lines(tmp_path / "results.jsonl", *(newer(str(size), size) for size in range(1, 2_001)))
    [size, _] = surveyed(file)["pages"]["sizes"]
    for percent in (10, 50, 90, 99):
        assert size[f"p{percent}"] == pytest.approx(20 * percent, rel=0.05)


def test_events_without_the_newer_fields_are_surveyed_and_the_gaps_are_named(
    scrapy: Scrapy, tmp_path: Path
) -> None:
    file = lines(tmp_path / "results.jsonl", a_page("a"), a_page("b", redirects=2))
    done = scrapy("survey", file, "--json")
    made = json.loads(done.stdout)
    assert made["missing"] == [
        "content_type", "size", "wire_size", "statuses", "found_on", "discovered_at", "outlinks",
    ]  # fmt: skip
    assert said(made["pages"]["ways"], "statuses") == [("0 redirects",), ("2 redirects",)]
    for table in ("content_types", "sizes", "size_classes", "linked_hosts", "leading_pages"):
        assert made["pages"][table] == []
    assert "note: no page has content_type, size, wire_size, statuses, found_on" in done.stderr


def test_a_dataset_and_json_lines_have_the_same_images(client: redis.Redis, tmp_path: Path) -> None:
    emit(client, range(12))
    refuse(client, 99, "robots.txt: line 1", kind="robots")
    file, folder = write(client, tmp_path)
    shutil.copytree(folder, tmp_path / "shards" / "shard=01")
    by_lines, by_rows, by_shards = (surveyed(one)["images"] for one in (file, folder, str(tmp_path / "shards")))
    assert by_rows["totals"] == by_shards["totals"]
    assert (by_rows["totals"]["alive"], by_rows["totals"]["gone"], by_rows["totals"]["forbidden"]) == (8, 2, 1)
    for one in (by_lines, by_rows):
        del one["reasons"]  # of a dataset they have no kind
    assert by_lines == by_rows
    whole = surveyed(file, folder)
    assert (whole["events"], whole["urls"]) == (26, 13)


def test_a_dataset_of_pages_and_json_lines_have_the_same_pages(client: redis.Redis, tmp_path: Path) -> None:
    add(client, KEYS.page_events, newer("a", 8_000), newer("b", 900, language=None), a_page("c", status=304))
    add(client, KEYS.link_rot_events, rotten("d"), gone(5))
    refuse(client, 1, "robots.txt: line 1", spider="pages", kind="robots")
    refuse(client, 2, "timeout", kind="timeout")
    file, folder = write(client, tmp_path, PagesForm)
    assert surveyed(folder)["pages"] == surveyed(file)["pages"]
    assert surveyed(folder)["images"]["totals"]["urls"] == 0


def test_lines_that_are_no_events_are_counted_and_other_events_are_passed_over(tmp_path: Path) -> None:
    halt = {"event": "crawl_halted", "source": "museum"}
    own = {"event": "failed", "spider": "shop", "url": "https://shop.example/", "reason": "x"}
    odd = a_page("b", status="?", links=[1], depth=1e99, fetched_at="soon", extra=5)
    file = lines(tmp_path / "results.jsonl", a_page("a"), halt, own, odd, "[1]", "{", '{"a": 1}', '{"event": "pag')
    made = surveyed(file)
    assert (made["urls"], made["unreadable"]) == (2, 4)
    assert said(made["pages"]["depths"], "depth", "urls") == [(1, 1)]


def test_duckdb_gets_no_more_memory_than_is_given(tmp_path: Path) -> None:
    file = lines(tmp_path / "results.jsonl", *(newer(str(number), 9) for number in range(2_000)))
    with opened(files_of([file]), 200) as database:
        found = database.execute("SELECT current_setting('memory_limit'), current_setting('threads')").fetchall()
        assert found == [("190.7 MiB", 1)]
        assert survey(database, 20)["urls"] == 2_000


def test_a_signal_ends_it_and_its_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = threading.Event()

    def interrupt(database: duckdb.DuckDBPyConnection) -> None:
        with suppress(duckdb.ConnectionException):  # it is closed by then
            while not ended.wait(0.05):
                database.interrupt()

    file = lines(tmp_path / "results.jsonl", newer("a", 9))
    try:
        with pytest.raises(KeyboardInterrupt), opened(files_of([file]), 1000) as database:
            assert list(tmp_path.glob("crawlproject-survey-*"))
            threading.Thread(target=interrupt, args=(database,)).start()
            database.execute("SELECT sum(a.range + b.range) FROM range(1000000) AS a, range(1000000) AS b")
    finally:
        ended.set()
    assert not list(tmp_path.glob("crawlproject-survey-*"))


HOSTILE = {
    "url": f"https://evil.example/{FORGED}",
    "source": "<img src=x onerror=alert(1)>",
    "language": "</style><script>alert(1)</script>",
    "content_type": f"text/{FORGED}<b>html",
    "found_on": f"javascript:alert(1)//[bold]{FORGED}",
    "outlinks": [{"url": "https://<svg onload=alert(1)>/"}, {"url": f"https://{FORGED}.example/"}],
}


def test_hostile_texts_neither_command_a_terminal_nor_become_markup(scrapy: Scrapy, tmp_path: Path) -> None:
    dead = {
        "event": "failed",
        "spider": "pages",
        "kind": "ours",
        "reason": f"<script>{FORGED}",
        "url": "https://b/",
    }
    file = lines(tmp_path / "results.jsonl", newer("a", 9, **HOSTILE), dead, newer("b", 9))
    for options in ([], ["--html", str(tmp_path / "survey.html")]):
        done = scrapy("survey", file, *options)
        assert done.returncode == 0, done.stderr
        for line in (done.stdout + done.stderr).split("\n"):
            assert line.isprintable(), ascii(line)
        assert "[bold]" in done.stdout
        assert "<img src=x onerror=alert(1)>" in done.stdout
    text = (tmp_path / "survey.html").read_bytes()
    document = lxml.html.document_fromstring(text)
    assert not {"script", "img", "b", "iframe", "a", "link"} & {one.tag for one in document.iter()}
    assert not [name for one in document.iter() for name in one.attrib if name.startswith("on") or name == "style"]
    assert "<img src=x onerror=alert(1)>" in document.text_content()
    assert all(char.isprintable() or char == "\n" for char in document.body.text_content())


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nosuch"], "there is no file or folder nosuch: name one that "),
        (["s3://bucket/out/"], "there is no file or folder s3://bucket/out/: copy it to this machine"),
        (["empty"], "empty has no events (*.parquet, *.jsonl): name a file or folder that "),
        (["other.parquet"], "no events of pages or images in other.parquet (1 file): name "),
        (["other.jsonl", "none.jsonl"], "no events of pages or images in other.jsonl, none.jsonl (2 files)"),
        (["broken.parquet"], "the events cannot be read: "),
        ([], "expected at least one FILE or FOLDER"),
        (["list.jsonl", "--memory", "9"], "--memory 9: expected at least 200 (MB)"),
        (["list.jsonl", "--top", "0"], "--top 0: expected 1 to 10000"),
        (["list.jsonl", "--stats", "nosuch"], "--stats nosuch: "),
        (["list.jsonl", "--stats", "list.jsonl"], "--stats list.jsonl: expected the output of "),
        (["list.jsonl", "--html", "no/such/survey.html"], "--html: "),
        (["list.jsonl", "--json", "--html", "-"], "--json and --html - both write to stdout"),
    ],
)
def test_what_cannot_be_surveyed_is_said_in_a_sentence(
    scrapy: Scrapy, tmp_path: Path, args: list[str], sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "broken.parquet").write_text("PAR1")
    lines(tmp_path / "other.jsonl", '{"a": 1}')
    lines(tmp_path / "none.jsonl")
    lines(tmp_path / "list.jsonl", a_page("a"))
    done = scrapy("survey", *args, cwd=tmp_path, SCRAPY_SETTINGS_MODULE="crawlproject.settings")
    assert done.returncode in {1, 2}
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or "--html" in args


def test_without_duckdb_the_extra_is_named(scrapy: Scrapy, tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("raise ImportError")
    done = scrapy("survey", lines(tmp_path / "results.jsonl"), PYTHONPATH=str(tmp_path))
    assert (done.returncode, "pip install 'crawlproject[survey]'" in done.stderr) == (1, True)


def test_traps_and_budgets_come_from_the_totals(scrapy: Scrapy, tmp_path: Path) -> None:
    file = lines(tmp_path / "results.jsonl", a_page("a"))
    assert "note: traps and budgets leave no events: give their counts by --stats" in scrapy("survey", file).stderr
    done = scrapy("survey", file, "--stats", "-", stdin=json.dumps(STATS))
    assert "links over budget: 630" in done.stdout
    assert "traps and budgets" not in done.stderr
    made = json.loads(scrapy("survey", file, "--stats", "-", "--json", stdin=json.dumps(STATS)).stdout)
    assert made["links"] == {
        "links_admitted": 721, "links_over_budget": 630, "links_refused": 5, "not_html_pdf": 2,
    }  # fmt: skip
    printed = scrapy("stats", "--spider", "pages").stdout  # and so named by the command
    assert made["links"].keys() - {"not_html_pdf"} <= json.loads(printed).keys()


def test_every_key_is_documented(tmp_path: Path) -> None:
    text = (ROOT / "crawlproject/contrib/survey/README.md").read_text(encoding="utf-8")
    made = surveyed(lines(tmp_path / "results.jsonl", newer("a", 9)))
    for keys in (made, made["pages"], made["pages"]["totals"]):
        for key in keys:
            assert f"`{key}`" in text, key


@pytest.mark.slow
def test_the_page_can_be_read_in_light_and_dark_and_on_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    file = lines(tmp_path / "results.jsonl", newer("a", 9_000, **HOSTILE), newer("b", 90), rotten("c"))
    with opened(files_of([file]), 1000) as database:
        (tmp_path / "survey.html").write_bytes(page(survey(database, 20, STATS)))
    context = browser.new_context(bypass_csp=True)  # axe is a script
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("console", lambda one: complaints.append(one.text))
    shown.on("request", lambda one: complaints.append(one.url) if one.url[:5] != "file:" else None)
    shown.set_default_timeout(1000 * PATIENCE_S)
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
        shown.set_viewport_size({"width": width, "height": 900})
        shown.emulate_media(color_scheme=scheme)
        shown.goto((tmp_path / "survey.html").as_uri())
        assert complaints == []
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        bar = shown.locator("rect.alive").first.bounding_box()
        assert bar is not None
        assert bar["width"] > 5
        found = Axe().run(shown, options={"resultTypes": ["violations"]})
        assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []
