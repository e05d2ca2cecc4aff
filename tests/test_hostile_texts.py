"""A whole crawl of hostile texts: identifiers, seeds and redirects."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from demo.gallery import Fault, Gallery, set_faults
from tests.forks import forks
from tests.test_crawl import KEYS, Crawl

SECRET = "S3CRET"
FORGED = "\nFORGED [owned] CRITICAL: all is lost\r\x1b[31m\x9b2J\u2028FORGED\u2029FORGED\x85FORGED\u202e"


@pytest.fixture
def crawl(crawl: Crawl) -> Crawl:
    crawl.options = ["-L", "DEBUG"]
    return crawl


def command(crawl: Crawl, *args: str, stdin: str = "") -> str:
    done = forks().run(args, crawl.environ, stdin)
    assert "Traceback" not in done.stderr
    assert_harmless(done.stderr)
    return done.stdout


def assert_harmless(text: str) -> None:
    """Nothing of it is an order to a terminal, a line that we have not written, or a password."""
    assert SECRET not in text
    for line in text.split("\n"):
        assert line.replace("\t", " ").isprintable(), ascii(line)
        assert not line.startswith("FORGED")


IDENTIFIERS = [
    "../../../../etc/passwd",
    "/absolute",
    "nul\x00byte",
    "forged" + FORGED,
    "x" * 1024,
    "\u200frtl \u202emarks",
    '"}\n{"event":"link_rot","identifier":"FORGED"}',
]


def redirects(host: str) -> dict[str, tuple[str, str]]:
    """Return where pictures are said to be, and what their reason must say."""
    return {
        "user.jpg": (f"http://me:{SECRET}@{host}/0.jpg", "bad redirect: URL with a user name or password"),
        "escapes.jpg": (f"http://a\x1b[31mFORGED\x9b.{host}/", "redirect to an invalid URL"),
        "none.jpg": ("http://[FORGED", "redirect to an invalid URL"),
        "long.jpg": (f"http://{host}/" + "x" * 9_000, "redirect to a URL of 90"),
        "dash.jpg": ("http://-rf/", "invalid source name"),
        "chain.jpg": ("/user.jpg", "bad redirect: URL with a user name or password"),
        "file.jpg": ("file:///etc/passwd", "status 302"),
    }


def bad_seeds(host: str) -> list[str]:
    return [
        f"http://me:{SECRET}@{host}/0.jpg",
        json.dumps({"url": f"http://me:{SECRET}/2@{host}/"}).replace("/", "\\u002f"),
        f"http://{host}/a\x1b[31m",
        json.dumps({"url": "http://a/", "source": "s" + FORGED}),
    ]


def test_hostile_texts_are_only_names_and_give_nothing_away(crawl: Crawl) -> None:
    photos = crawl.source("photos", 100, pictures=3)
    guarded = crawl.source("guarded", 100, pictures=1)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        url = crawl.gallery.urls["photos"]
        host = url.removeprefix("http://")
        places, bad = redirects(host), bad_seeds(host)
        faults: dict[str, Fault] = {
            f"/{name}": {"status": 302, "headers": {"Location": place}} for name, (place, _) in places.items()
        }
        faults["/0.jpg"] = {"headers": {"Content-Type": "image/jpeg\x1b[31m\x9b2J FORGED"}}
        faults["/odd.jpg"] = {
            "status": 302,
            "headers": {"Location": "/0.jpg?@x=\x1b[31m\u00e4"},
        }  # it only looks odd
        set_faults(photos, faults)
        secret = f"http://me:{SECRET}@{host}/robots.txt"
        set_faults(guarded, {"/robots.txt": {"status": 302, "headers": {"Location": secret}}})
        for number, identifier in enumerate(IDENTIFIERS):
            seed = {"url": f"{url}/{number % 3}.jpg", "uuid": identifier, "source": "photos"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed, ensure_ascii=number % 2 == 0))
        crawl.redis.lpush(KEYS.seeds, *bad)
        crawl.seed("photos", "gone.gone", **{"uuid": "gone" + FORGED})
        crawl.seed("photos", *places, "odd.jpg")
        crawl.seed("guarded", "0.jpg")
        crawl.run(CRAWL_MAX_RETRIES="0")
        requested = [arrival["path"] for arrival in crawl.arrivals("photos")]
    events = crawl.events(KEYS.image_events)
    assert sorted(event["identifier"] for event in events) == sorted([*IDENTIFIERS, "photos-odd.jpg"])
    assert [event["identifier"] for event in crawl.events(KEYS.link_rot_events)] == ["gone" + FORGED]
    store = crawl.folder / "thumbnails"
    written = {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()} - {".probe"}
    assert written == {event["thumbnail"] for event in events}
    assert sorted(path.name for path in crawl.folder.iterdir()) == [
        "arrivals.jsonl", "catalogue.json", "sites", "thumbnails", "worker-0.log"
    ]  # fmt: skip

    dead = crawl.dead()
    assert "at a refused address: URL with a user name or password" in dead.pop("guarded-0.jpg")
    for name, (_, words) in places.items():
        assert dead.pop(f"photos-{name}").startswith(words)
    assert len(dead) == len(bad)
    assert sum("***" in seed for seed in dead) == 2
    of_pictures = ("/0.jpg", "/1.jpg", "/2.jpg", "/gone")
    others = [path for path in requested if not path.startswith(of_pictures)]
    assert sorted(others) == sorted([f"/{name}" for name in places] + ["/odd.jpg", "/user.jpg"])
    statuses = crawl.redis.lrange(KEYS.statuses_of + "photos", 0, -1)
    assert set(statuses) <= {b"200", b"302", b"410"}  # our refusals do not count against the source
    for text in (crawl.log(), json.dumps(dead), command(crawl, "dead", "list"), command(crawl, "explain", secret)):
        assert_harmless(text)
    assert "DEBUG: Crawled (200)" in crawl.log()  # it was as talkative as can be
    raw = b"".join(fields.get(b"seed", b"") for _, fields in crawl.redis.xrange(KEYS.dead))
    assert SECRET.encode() in raw  # what was seeded is kept as it was
    of_seeds = {KEYS.dead.encode(), KEYS.failed_events.encode()}
    everything: list[Any] = [crawl.redis.dump(key) for key in crawl.redis.keys("*") if key not in of_seeds]
    assert SECRET.encode() not in b"".join(everything)

    file = crawl.folder / "events.jsonl"
    command(crawl, "events", str(file))
    text = file.read_text()
    assert_harmless(text)
    of = Counter(json.loads(line)["event"] for line in text.splitlines())
    assert of["image_metadata_updates"] + of["link_rot"] == len(events) + 1
    assert of.keys() == {"image_metadata_updates", "link_rot", "failed"}
    said = command(crawl, "feed", "-", stdin="\n".join(bad))
    assert said.startswith("0 seeds fed, ")
    assert_harmless(said)
