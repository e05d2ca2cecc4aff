"""`scrapy report`: what was requested of a site, by the crawler's own count and by the site's log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import lxml.html
import pytest

from demo.gallery import Fault, Gallery, set_faults
from tests.commands.conftest import Frontier
from tests.conftest import ROOT, Scrapy
from tests.test_crawl import Crawl, picture

ROBOTS = "User-agent: crawlproject\nDisallow: /private/ # <b>\u202eno</b>\n"


def reported(scrapy: Scrapy, *args: str, **environ: Any) -> dict[str, Any]:
    done = scrapy("report", "--json", *args, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.slow
def test_a_report_agrees_with_the_log_of_the_site(crawl: Crawl, scrapy: Scrapy) -> None:
    photos, museum = crawl.source("photos", 40, pictures=60), crawl.source("museum", 5, pictures=3)
    faults: dict[str, Fault] = {
        "/robots.txt": {"status": 200, "body": ROBOTS},
        "/moved.jpg": {"status": 302, "headers": {"Location": "/0.jpg"}},
        "/kept.jpg": {"status": 200, "headers": {"X-Robots-Tag": "noai"}},
        "/busy.jpg": {"status": 429, "headers": {"Retry-After": "1"}, "times": 2},
        "/slow.jpg": {"delay": 60},
        "/cut.jpg": {"drop": True},
    }
    for name in ("kept", "busy", "moved"):
        (photos / f"{name}.jpg").write_bytes(picture(6))
    set_faults(photos, faults)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        paths = [f"{n}.jpg" for n in range(60)] + [name[1:] for name in faults if name != "/robots.txt"]
        crawl.seed("photos", *paths, "gone.jpg", "private/1.jpg", "private/2.jpg")
        crawl.seed("museum", *(f"{n}.jpg" for n in range(3)))
        crawl.run(2, DOWNLOAD_TIMEOUT="5")
        arrivals = crawl.gallery.arrivals()
    for source in ("photos", "museum"):
        seen = [arrival for arrival in arrivals if arrival["source"] == source]
        said = reported(scrapy, source, **crawl.environ)
        totals = said["totals"]
        lost = {"timeout": sum(one["path"] == "/slow.jpg" for one in seen)}
        lost["network"] = sum(one["status"] is None for one in seen)
        by_status = Counter(str(one["status"]) for one in seen if one["status"] and one["path"] != "/slow.jpg")
        assert totals["requests"] == len(seen)
        assert totals["results"] == {name: n for name, n in (by_status | Counter(lost)).items() if n}
        assert totals["for_robots_txt"] == sum(one["path"] == "/robots.txt" for one in seen) >= 1
        sizes = {f"/{n}.jpg": len(picture(n)) for n in range(60)} | {"/kept.jpg": len(picture(6))}
        sizes |= {"/robots.txt": len(ROBOTS.encode()) if source == "photos" else 4}
        served = sum(
            4 if one["status"] != 200 and one["path"] != "/robots.txt" else sizes.get(one["path"], len(picture(6)))
            for one in seen
            if one["path"] not in {"/slow.jpg", "/cut.jpg"}
        )
        assert totals["bytes"] == served
        assert 1 <= totals["peak"]["requests"] <= totals["peak"]["allowed"]
        assert totals["hours_above_allowed"] == totals["maybe_more"] == 0
    said = reported(scrapy, "photos", **crawl.environ)
    totals = said["totals"]
    assert (totals["refused_by_robots"], totals["opt_outs_honoured"]) == (2, 1)
    assert (totals["slowed"], totals["held"]) == (1, 2)
    assert {one["what"] for one in said["incidents"]} == {"slowed", "held"}
    [robots] = said["robots"]
    assert (robots["url"], robots["status"]) == (f"{crawl.gallery.urls['photos']}/robots.txt", "200")
    assert (robots["text"], robots["obeyed"]) == (ROBOTS, "its rules are obeyed")
    assert said["made"] >= robots["fetched"] >= said["hours"][0]["begin"]
    assert museum.exists()


async def test_the_page_has_no_scripts_and_loads_nothing(
    scrapy: Scrapy, frontier: Frontier, tmp_path: Path
) -> None:
    await frontier.catalogue({"museum": 5.0})
    await frontier.settle("museum", ["200", "500"])
    file = tmp_path / "report.html"
    done = scrapy("report", "museum", "--html", str(file), CRAWL_CONTACT="https://example.org/?a=1&b=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("source:")
    text = file.read_text()
    assert text == scrapy("report", "museum", "--html", "-", CRAWL_CONTACT="https://example.org/?a=1&b=2").stdout
    page = lxml.html.document_fromstring(text.encode())
    assert not {"script", "img", "iframe", "object", "embed", "form"} & {one.tag for one in page.iter()}
    named = {name for one in page.iter() for name in one.attrib}
    assert not [name for name in named if name in {"src", "srcset", "data", "style"} or name.startswith("on")]
    assert "https://example.org/?a=1&amp;b=2" in text
    assert "url(" not in text
    assert "@import" not in text


async def test_a_host_or_url_stands_for_its_source(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"citymuseum": 5.0})
    await frontier.scripts.set_rates(frontier.fence, [], {"museum.org": "citymuseum"})
    for argument in ("citymuseum", "CityMuseum", "images.museum.org", "https://images.museum.org/a?b=c"):
        assert reported(scrapy, argument)["source"] == "citymuseum"


async def test_what_is_unknown_or_excluded_is_said(scrapy: Scrapy, frontier: Frontier, tmp_path: Path) -> None:
    done = scrapy("report", "nobody.example")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("scrapy report: nothing is known of nobody.example: ")
    for wrong in ("x y", "ftp://museum.org/"):
        done = scrapy("report", "--", wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is neither a source nor a URL" in done.stderr
    await frontier.scripts.exclude({"museum.example": "asked by mail"}, by="alice@secret")
    done = scrapy("report", "museum.example")
    assert (done.returncode, done.stderr) == (0, "")
    assert "excluded:        as museum.example: nothing is requested of it (see scrapy excluded)" in done.stdout
    assert reported(scrapy, "museum.example")["state"] == "excluded"
    page = scrapy("report", "museum.example", "--html", "-").stdout
    assert "it is excluded from the crawl since " in page
    assert "Nothing was requested in the last 90 days." in page
    assert "alice" not in page
    assert "asked by mail" not in page  # that is the operator's own note


async def test_every_key_is_documented(scrapy: Scrapy, frontier: Frontier) -> None:
    await frontier.catalogue({"museum": 5.0})
    await frontier.settle("museum", ["200"])
    said = reported(scrapy, "museum")
    text = (ROOT / "crawlproject/contrib/report/README.md").read_text(encoding="utf-8")
    for keys in (said, said["who"], said["rate"], said["totals"]):
        for key in keys:
            assert f"`{key}`" in text, key
