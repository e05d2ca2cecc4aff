"""Whole crawls of seeds whose sources are made up, or are not those that their URLs lead to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawlproject.state.keys import Keys
from crawlproject.state.source_counts import counts_in
from demo.gallery import Fault, Gallery, set_faults
from tests.test_crawl import Crawl, picture, size_for, worst_second

KEYS = Keys("crawl", "images")


def site(crawl: Crawl, name: str, pictures: int) -> Path:
    """Make a site that the catalogue does not name."""
    folder = crawl.sites / name
    folder.mkdir(parents=True)
    for number in range(pictures):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    return folder


def catalogue(crawl: Crawl, *rows: dict[str, Any]) -> None:
    (crawl.folder / "catalogue.json").write_text(json.dumps(rows))


def row(name: str, rate: float, **more: Any) -> dict[str, Any]:
    return {"source_name": name, "image_count": size_for(rate), **more}


def push(crawl: Crawl, site: str, host: str, source: str, *paths: str) -> None:
    """Push seeds that name `source` and lead to a site under the name `host`."""
    port = crawl.gallery.urls[site].rpartition(":")[2]
    for path in paths:
        seed = {"url": f"http://{host}:{port}/{path}", "uuid": f"{source}-{host}-{path}", "source": source}
        crawl.redis.lpush(KEYS.seeds, json.dumps(seed))


def thumbnails(crawl: Crawl) -> dict[str, int]:
    """Return how many pictures were counted for each source."""
    found = {source.decode(): counts_in(packed) for source, packed in crawl.redis.hgetall(KEYS.counts).items()}
    return {source: counts["thumbnails"] for source, counts in found.items() if "thumbnails" in counts}


@pytest.mark.judges
def test_sixty_made_up_names_for_one_host_get_no_more_than_its_rate(crawl: Crawl) -> None:
    site(crawl, "victim", 60)
    catalogue(crawl, row("photos", 200))
    names = [f"made-up-{n}" for n in range(60)]
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.redis.set(KEYS.override_rate_of + "victim.org", 10)
        for number, name in enumerate(names):
            push(crawl, "victim", f"img{number % 3}.victim.org", name, f"{number}.jpg")
        crawl.run(2)
        arrivals = [arrival for arrival in crawl.gallery.arrivals() if arrival["source"] == "victim"]
    assert len([arrival for arrival in arrivals if arrival["path"] != "/robots.txt"]) == 60
    assert worst_second(arrivals) <= 1.1 * 10 + 1
    # The names are those of the events; everything else goes by the domain.
    assert sorted(event["source"] for event in crawl.events(KEYS.image_events)) == sorted(names)
    assert thumbnails(crawl) == {"victim.org": 60}
    assert {name.decode() for name in crawl.redis.smembers(KEYS.sources)} == {"victim.org", "photos"}
    assert "Traceback" not in crawl.log() + crawl.log(1)


def test_permission_of_one_source_opens_no_pictures_of_another(crawl: Crawl) -> None:
    for name in ("museum", "victim"):
        folder = site(crawl, name, 1)
        (folder / "p").mkdir()
        (folder / "p" / "1.jpg").write_bytes(picture(1))
        (folder / "robots.txt").write_text("User-agent: *\nDisallow: /p/\n")
    catalogue(
        crawl,
        row("museum", 50, robots="ignore", hosts=["img.museum.org"]),
        row("photos", 50, robots="ignore"),  # without hosts
    )
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        push(crawl, "museum", "img.museum.org", "museum", "p/1.jpg")
        push(crawl, "museum", "www.museum.org", "museum", "p/1.jpg")
        push(crawl, "victim", "victim.org", "museum", "p/1.jpg")
        push(crawl, "victim", "victim.org", "photos", "p/1.jpg")
        push(crawl, "victim", "victim.org", "made-up", "p/1.jpg")
        crawl.redis.set(KEYS.override_rate_of + "victim.org", 50)
        crawl.run()
        assert crawl.arrivals("victim") == []
        assert [arrival["path"] for arrival in crawl.arrivals("museum")] == ["/p/1.jpg"]
    refused = {f"{name}-victim.org-p/1.jpg" for name in ("museum", "photos", "made-up")} | {
        "museum-www.museum.org-p/1.jpg"
    }
    assert set(crawl.dead()) == refused
    assert all("robots.txt: line 2, Disallow: /p/" in reason for reason in crawl.dead().values())
    assert thumbnails(crawl) == {"museum": 1}
    assert 'row 2 is left out: "robots" of photos without "hosts"' in crawl.log()


def test_a_redirect_and_a_retry_keep_the_name_in_the_event_and_the_source_in_the_counts(crawl: Crawl) -> None:
    faults: dict[str, Fault] = {"/0.jpg": {"status": 500, "times": 1}}
    set_faults(site(crawl, "cdn", 3), faults)
    with_redirect = site(crawl, "museum", 3)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        port = crawl.gallery.urls["cdn"].rpartition(":")[2]
        moved: dict[str, Fault] = {
            "/0.jpg": {"status": 302, "headers": {"Location": f"http://cdn.net:{port}/0.jpg"}},
            "/1.jpg": {"status": 302, "headers": {"Location": "/2.jpg"}},
        }
        set_faults(with_redirect, moved)
        catalogue(crawl)
        for domain in ("museum.org", "cdn.net"):
            crawl.redis.set(KEYS.override_rate_of + domain, 20)
        push(crawl, "museum", "museum.org", "made-up", "0.jpg", "1.jpg")
        crawl.run(CRAWL_RETRY_DELAY="0.2")
    assert thumbnails(crawl) == {"museum.org": 2}
    events = {event["identifier"]: event for event in crawl.events(KEYS.image_events)}
    assert {(event["source"], event["redirects"]) for event in events.values()} == {("made-up", 1)}
    assert events["made-up-museum.org-0.jpg"]["attempts"] == 2
    assert {name.decode() for name in crawl.redis.smembers(KEYS.sources)} == {"museum.org", "cdn.net"}
