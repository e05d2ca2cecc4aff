"""Whole crawls of hostile texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.gallery import Fault, Gallery, set_faults
from tests.forks import forks
from tests.test_crawl import KEYS, Crawl

SECRET = "S3CRET"
FORGED = "\nFORGED [owned] CRITICAL: all is lost\r\x1b[31m\x9b2J\u2028FORGED\u2029FORGED\x85FORGED\u202e"


@pytest.fixture
def crawl(tmp_path: Path, environment: dict[str, str], redis_url: str) -> Iterator[Crawl]:
    one = Crawl(tmp_path, environment, redis_url)
    one.options = ["-L", "DEBUG"]
    yield one
    one.stop()


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


def test_hostile_identifiers_are_only_names(crawl: Crawl) -> None:
    photos = crawl.source("photos", 100, pictures=3)
    set_faults(photos, {"/0.jpg": {"headers": {"Content-Type": "image/jpeg\x1b[31m\x9b2J FORGED"}}})
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        url = crawl.gallery.urls["photos"]
        for number, identifier in enumerate(IDENTIFIERS):
            seed = {"url": f"{url}/{number % 3}.jpg", "uuid": identifier, "source": "photos"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed, ensure_ascii=number % 2 == 0))
        crawl.seed("photos", "gone.gone", **{"uuid": "gone" + FORGED})
        crawl.seed("photos", "0.jpg", **{"uuid": "y" * 10_000})
        crawl.run()
    events = crawl.events(KEYS.image_events)
    assert sorted(event["identifier"] for event in events) == sorted(IDENTIFIERS)
    assert [event["identifier"] for event in crawl.events(KEYS.link_rot_events)] == ["gone" + FORGED]
    (reason,) = crawl.dead().values()
    assert reason.startswith("uuid must be a string of 1-1,024 characters: 'yyyy")
    store = crawl.folder / "thumbnails"
    written = {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()} - {".probe"}
    assert written == {event["thumbnail"] for event in events}
    assert sorted(path.name for path in crawl.folder.iterdir()) == [
        "arrivals.jsonl", "catalogue.json", "sites", "thumbnails", "worker-0.log"
    ]  # fmt: skip
    assert_harmless(crawl.log())
    assert "DEBUG: Crawled (200)" in crawl.log()  # it was as talkative as can be

    file = crawl.folder / "events.jsonl"
    command(crawl, "events", str(file))
    text = file.read_text()
    assert_harmless(text)
    lines = text.splitlines()
    of = Counter(json.loads(line)["event"] for line in lines)
    assert of["image_metadata_updates"] + of["link_rot"] == len(IDENTIFIERS) + 1
    assert of.keys() == {"image_metadata_updates", "link_rot", "failed"}


def invalid_seeds(url: str) -> dict[str, str]:
    """Return seeds by what their reason must say."""
    host = url.removeprefix("http://")
    return {
        f"http://me:{SECRET}@{host}/0.jpg": "user name or password",
        json.dumps({"url": f"http://{SECRET}@{host}/1.jpg", "uuid": "a"}): "user name or password",
        json.dumps({"url": f"http://me:{SECRET}/2@{host}/"}).replace("/", "\\u002f"): "invalid URL",
        f"{url}/{'x' * 1_000_000}": "more than 8192",
        f"{url}/a\tb": "spaces or control",
        f"{url}/a\x1b[31m": "spaces or control",
        f"http://a\u2028FORGED.{host}/": "invalid host name",
        f"http://{host}\\x": "invalid URL",
        f"{url}:x/{FORGED[:1].strip()}": "invalid URL",
        "[" * 50_000: "not JSON",
        '{"url": ' * 50_000: "not JSON",
        '["http://a/"]': "not an object",
        '{"url": {"url": "http://a/"}}': "no URL",
        '{"url": "http://a/", "priority": NaN}': "priority",
        '{"url": "http://a/", "priority": 1e999}': "priority",
        '{"url": "http://a/", "uuid": ' + "9" * 2_000 + "}": "uuid",
        '{"url": "http://a/", "uuid": ' + "9" * 10_000 + "}": "not JSON",
        json.dumps({"url": "http://a/", "source": "s" + FORGED}): "1 to 128 letters",
        json.dumps({"url": "http://a/", "source": "$(touch x)"}): "as in touch_x",
        json.dumps({"url": "http://a/", "source": "-rf"}): "as in rf",
        "http://-rf/": "invalid host '-rf'",
        json.dumps({"url": "ftp://a/" + FORGED.strip().replace(" ", "")}): "URL with",
    }


def test_hostile_seeds_are_dead_letters_that_give_nothing_away(crawl: Crawl) -> None:
    photos = crawl.source("photos", 100, pictures=3)
    (photos / "sub").mkdir()
    (photos / "2.jpg").rename(photos / "sub" / "2.jpg")
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        url = crawl.gallery.urls["photos"]
        bad = invalid_seeds(url)
        for line in bad:
            crawl.redis.lpush(KEYS.seeds, line.encode())
        good = [
            f'{{"url": "http://a/", "url": "{url}/0.jpg", "uuid": "twice", "source": "photos"}}',
            f'{{"url": "{url}/1.jpg", "uuid": "huge", "priority": 99999999999999999999, "source": "photos"}}',
            f'{{"url": "{url}/sub\\\\2.jpg", "uuid": "backslash", "source": "photos"}}',
        ]
        crawl.redis.lpush(KEYS.seeds, *good)
        crawl.run()
    assert {event["identifier"] for event in crawl.events(KEYS.image_events)} == {"twice", "huge", "backslash"}
    letters = json.loads(command(crawl, "dead", "list", "--json"))
    assert len(letters) == len(bad)
    reasons = [letter["reason"] for letter in letters]
    for words in bad.values():
        assert any(words in reason for reason in reasons), words
    assert sum("user name or password" in reason for reason in reasons) == 2
    masked = [letter["seed"] for letter in letters if "***" in letter["seed"]]
    assert len(masked) == 3
    for text in (command(crawl, "dead", "list"), json.dumps(letters), "\n".join(reasons), crawl.log()):
        assert_harmless(text)
    raw = b"".join(fields[b"seed"] for _, fields in crawl.redis.xrange(KEYS.dead))
    assert SECRET.encode() in raw  # what was seeded is kept as it was

    said = command(crawl, "feed", "-", stdin="\n".join(line for line in bad if "\r" not in line))
    assert said.startswith("0 seeds fed, ")
    assert_harmless(said)
    assert_harmless(command(crawl, "explain", f"http://me:{SECRET}@a/"))


def test_hostile_redirects_are_refused_before_they_are_logged_or_stored(crawl: Crawl) -> None:
    photos = crawl.source("photos", 100, pictures=2)
    guarded = crawl.source("guarded", 100, pictures=1)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        host = crawl.gallery.urls["photos"].removeprefix("http://")
        places = {
            "user.jpg": (f"http://me:{SECRET}@{host}/0.jpg", "bad redirect: URL with a user name or password"),
            "relative.jpg": (f"//{SECRET}@{host}/0.jpg", "bad redirect: URL with a user name or password"),
            "escapes.jpg": (f"http://a\x1b[31mFORGED\x9b.{host}/", "redirect to an invalid URL"),
            "none.jpg": ("http://[FORGED", "redirect to an invalid URL"),
            "port.jpg": ("http://a:99999/", "redirect to an invalid URL"),
            "long.jpg": (f"http://{host}/" + "x" * 9_000, "redirect to a URL of 90"),
            "dash.jpg": ("http://-rf/", "invalid source name"),
            "chain.jpg": ("/user.jpg", "bad redirect: URL with a user name or password"),
            "file.jpg": ("file:///etc/passwd", "status 302"),
        }
        faults: dict[str, Fault] = {
            f"/{name}": {"status": 302, "headers": {"Location": place}} for name, (place, _) in places.items()
        }
        # The good one: it only looks odd
        faults["/odd.jpg"] = {"status": 302, "headers": {"Location": "/0.jpg?@x=\x1b[31m\u00e4"}}
        set_faults(photos, faults)
        set_faults(
            guarded,
            {"/robots.txt": {"status": 302, "headers": {"Location": f"http://me:{SECRET}@{host}/robots.txt"}}},
        )
        crawl.seed("photos", *places, "odd.jpg")
        crawl.seed("guarded", "0.jpg")
        crawl.run(CRAWL_MAX_RETRIES="0")
        requested = [arrival["path"] for arrival in crawl.arrivals("photos")]
    assert {event["identifier"] for event in crawl.events(KEYS.image_events)} == {"photos-odd.jpg"}
    dead = crawl.dead()
    reason = dead.pop("guarded-0.jpg")
    assert "at a refused address: URL with a user name or password" in reason
    assert dead.keys() == {f"photos-{name}" for name in places}
    for name, (_, words) in places.items():
        assert dead[f"photos-{name}"].startswith(words), dead
    assert sorted(path for path in requested if not path.startswith(("/0.jpg", "//0.jpg"))) == sorted(
        [f"/{name}" for name in places] + ["/odd.jpg", "/user.jpg"]
    )
    for text in (crawl.log(), json.dumps(dead), command(crawl, "dead", "list")):
        assert_harmless(text)
    everything: list[Any] = [crawl.redis.dump(key) for key in crawl.redis.keys("*")]
    assert SECRET.encode() not in b"".join(everything)
    statuses = crawl.redis.lrange(KEYS.statuses_of + "photos", 0, -1)
    assert set(statuses) <= {b"200", b"302"}  # our refusals do not count against the source
