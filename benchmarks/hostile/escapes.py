"""What a terminal obeys, out of Redis and out of sites, through every command that prints and through the log."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import redis

from benchmarks.hostile.crawling import KEYS, crawl
from benchmarks.hostile.redirects import good_picture, to
from benchmarks.hostile.room import Room, Tally, scrapy
from benchmarks.hostile.server import ANY, Answer, Server, plain

NASTY = "museum\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"  # sets the title, clears the screen, reverses what follows
URL = "https://museum.org/1.jpg"
COMMANDS = (
    ["sources"],
    ["sources", "museum"],
    ["dead", "list"],
    ["explain", URL],
    ["events", "--readers"],
    ["top", "--once"],
)
_MORE_COMMANDS = (
    ["stats"],
    ["excluded"],
    ["explain", NASTY],
    ["explain", f"https://museum.org/{NASTY}"],
    ["sources", NASTY],
    ["halt", NASTY],
    ["halt", "museum"],
    ["resume", "museum"],
    ["rate", "museum", NASTY],
    ["rate", "museum", "auto"],
    ["rate", NASTY, "1"],
    ["exclude", NASTY],
    ["include", NASTY],
    ["dead", "retry", "--source", NASTY],
    ["dead", "retry", "--reason", NASTY],
    ["dead", "drop", "--reason", NASTY],
    ["feed", NASTY],
)
_SETTINGS = ("REDIS_URL", "CRAWL_SOURCES", "CRAWL_CONTACT", "CRAWL_ALLOW_NETWORKS", "CRAWL_EXCLUDE")


def plant(url: str) -> None:
    """Write it wherever a command reads from."""
    nasty = NASTY.encode()
    with redis.Redis.from_url(url) as client:
        client.xadd(KEYS.dead, {"source": NASTY, "reason": NASTY, "time": NASTY, "seed": NASTY})
        client.sadd(KEYS.sources, "museum", NASTY)
        client.hset(KEYS.hosts, "museum.org", NASTY)
        for source in ("museum", NASTY):
            client.set(KEYS.override_rate_of + source, NASTY)
            client.rpush(KEYS.statuses_of + source, NASTY)
            client.set(KEYS.circuit_of + source, msgpack.packb({"state": NASTY, "why": NASTY}, use_bin_type=False))
        client.set(KEYS.paused, NASTY)
        record = {"last": {KEYS.image_events: NASTY}, "numbers": {}, "lengths": {}, "host": NASTY, "output": NASTY}
        client.hset(KEYS.readers, nasty, msgpack.packb(record, use_bin_type=False))


def _plant_more(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.sadd(KEYS.halted, NASTY)
        client.sadd(KEYS.excluded, NASTY)
        note = json.dumps({"by": NASTY, "time": NASTY, "reason": NASTY, "file": NASTY})
        client.hset(KEYS.excluded_by, NASTY, note)
        client.hset(KEYS.catalogue, NASTY, NASTY)
        client.xadd(KEYS.audit, {"source": NASTY, "what": NASTY, "by": NASTY})


def _commands(room: Room, tally: Tally) -> None:
    with room.redis() as url:
        tried: list[tuple[list[str], dict[str, str]]] = [(words, {}) for words in (*COMMANDS, *_MORE_COMMANDS)]
        tried += [(["events", str(room.folder / NASTY)], {})]
        tried += [([*words, "--json"], {}) for words in COMMANDS]
        tried += [(["sources"], {name: NASTY}) for name in _SETTINGS]
        for words, settings in room.some(tried):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            plant(url)
            _plant_more(url)
            done = scrapy(url, *words, **settings)
            shown = done.stdout + done.stderr
            fault = "" if shown.replace("\n", "").isprintable() else f"it prints {shown[-200:]!r}"
            if "Traceback" in shown:
                fault = shown[-300:]
            tally.judge(f"scrapy {' '.join(words)}{' with ' if settings else ''}{' '.join(settings)}", fault)


def _answers() -> dict[str, Answer]:
    """Return answers with it in every place that comes into the log."""
    picture = good_picture()
    made = {
        f"{name}-{status[:3]}": plain(picture, f"{name}: {NASTY}", status=status)
        for name in (
            "Content-Type",
            "Content-Encoding",
            "Server",
            "X-Robots-Tag",
            "Retry-After",
            "Set-Cookie",
            "Date",
        )
        for status in ("200 OK", "500 Error", "403 Forbidden")
    }
    return made | {
        "reason": plain(picture, status=f"500 {NASTY}"),
        "location": to(f"/{NASTY}"),
        "host": to(f"http://{NASTY}/"),
        "header": plain(picture, f"{NASTY}: a"),
        "html": plain(f"<html>{NASTY}".encode()),
        "svg": plain(f'<svg xmlns="http://www.w3.org/2000/svg" width="{NASTY}"/>'.encode()),
        "version": lambda sock: sock.sendall(f"{NASTY} 200 OK\r\n\r\n".encode()),
    }


def _crawled(room: Room, tally: Tally) -> None:
    """Have a worker log it, as a text and as JSON."""
    answers = dict(room.some(list(_answers().items())))
    robots = plain(f"User-agent: *\nDisallow: /{NASTY}\nDisallow: /private{NASTY}*\n{NASTY}\n".encode())
    for form in ("text", "json"):
        folder = room.folder / form
        folder.mkdir()
        with Server(answers | {"robots.txt": robots, ANY: plain(b"", status="404 Not Found")}) as server:
            seeds: list[dict[str, Any]] = [{"url": f"{server.url}/{name}", "uuid": name} for name in answers]
            seeds += [{"url": f"{server.url}/named", "uuid": NASTY}]
            ran = crawl(folder, seeds, CRAWL_LOG_FORMAT=form)
        for seed in seeds:
            tally.judge(f"{seed['uuid']}, log as {form}", ran.fault(seed["uuid"], None))
        ran.judge(tally)


def terminal_escapes(room: Room) -> Tally:
    """Try commands and log."""
    tally = Tally("terminal escapes")
    _commands(room, tally)
    _crawled(room, tally)
    return tally
