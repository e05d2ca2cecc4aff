"""Sources named for a shell, a terminal, a file system or a Redis pattern: refused, or nothing but names."""

from __future__ import annotations

import json
from typing import Any

import redis

from benchmarks.hostile.crawling import IMAGE, KEYS, SOURCE, crawl
from benchmarks.hostile.redirects import good_picture
from benchmarks.hostile.room import Room, Tally, scrapy
from benchmarks.hostile.server import ANY, Server, plain
from benchmarks.ours import ROOT
from crawlproject.errors import BadSeed
from crawlproject.frontier.seeds import parse_seed

NAMES = (
    *("$(touch owned)", "$(touch${IFS}owned)", "`touch owned`", "`touch${IFS}owned`", "a;touch owned", "a;reboot"),
    *(
        "a|tee owned",
        "a&&reboot",
        "a>owned",
        "a<b",
        "a\nreboot",
        "'",
        '"',
        "'; reboot; '",
        "\\",
        "!!",
        "~",
        "~root",
    ),
    *(
        "-rf",
        "--json",
        "--",
        "-",
        "-s CRAWL_CONTACT=x",
        "--set=x",
        "{a,b}",
        "#a",
        "$HOME",
        "${HOME}",
        "%s%n",
        "%00",
    ),
    *("*", "?", "[a-z]*", "museu?", "mus*", "[m]useum", "\\*", "**", "?" * 100),
    *("..", ".", "../..", "../../etc/passwd", "/etc/passwd", "C:\\con", "a/b", "con", "nul\0byte"),
    *("\x1b[2J", "\x1b]0;owned\x07", "a\x9b31m", "a\u202eb", "a\u2028b", "\ufeffa", "\u200b", "a\tb", "a\rb"),
    *("a:b", ":a", "a:", "crawl:halted", "images:start_urls", "crawl:*", "{tag}", "a}b{c", "1.0:museum"),
    *("null", "true", "nan", "inf", "0", "-1", "1e400", "__proto__", "constructor", "<script>alert(1)</script>"),
    *("", " ", "x" * 128, "x" * 129, "x" * 100_000, "\ud800", "İ", "ß", "ﬁ", "museum\u0000", "museum ", "MUSEUM"),
)
_BYSTANDERS = ("museum", "archive", "museum-of-art", "m", "a", "b")


def _is_name(name: str) -> str | None:
    """Return what a source of that name is called where its seeds are taken; None where they are refused."""
    try:
        return parse_seed(json.dumps({"url": "http://museum.org/", "source": name}).encode()).source or ""
    except BadSeed:
        return None


def _is_only_a_name(name: str) -> bool:
    """Tell whether a shell, a parser of options and a terminal take a name for one."""
    plain = all(char.isalnum() or char in "._-:" or not char.isascii() for char in name)
    return plain and name.isprintable() and not name.startswith("-")


def _crawled(room: Room, tally: Tally) -> None:
    """Have a worker crawl seeds of these sources: each ends once, as a picture or a dead letter."""
    with Server({ANY: plain(good_picture())}) as server:
        seeds: list[dict[str, Any]] = [
            {"url": f"{server.url}/{number}", "uuid": f"name-{number}", "source": name}
            for number, name in enumerate(room.some(NAMES))
        ]
        good = {"url": f"{server.url}/good", "uuid": "good", "source": SOURCE}
        # A name that nobody knows may be paced by its host
        rows = [{"source_name": "loopback", "image_count": 10**9, "hosts": ["127.0.0.1"]}]
        ran = crawl(room.folder, [*seeds, good], rows)
    for seed in seeds:
        fault = ran.fault(seed["uuid"], None)
        taken = _is_name(seed["source"])
        if not fault and (taken is not None) != (ran.ends[seed["uuid"]] == [IMAGE]):
            fault = f"ended as {ran.ends[seed['uuid']]}"
        if not fault and taken and not _is_only_a_name(taken):
            fault = f"taken as {taken!r}, which is more than a name to a shell or a terminal"
        tally.judge(f"seed of {seed['source']!r}", fault)
    tally.judge("seed of an ordinary source", ran.fault("good", IMAGE))
    ran.judge(tally)


def _ordered(room: Room, tally: Tally) -> None:
    """Halt each by its name: that halts it alone, or is refused with a sentence, and no other is touched."""
    with room.redis() as url, redis.Redis.from_url(url) as client:
        for name in room.some([name for name in NAMES if "\0" not in name and len(name) < 1000]):
            if not name.isprintable() and not name.isspace():
                continue  # tried as seeds, and among the terminal escapes
            client.flushall()
            client.sadd(KEYS.sources, *_BYSTANDERS)
            client.mset({KEYS.override_rate_of + one: "5" for one in _BYSTANDERS})
            taken = _is_name(name)
            done = scrapy(url, "halt", "--", name)
            halted = {one.decode() for one in client.smembers(KEYS.halted)}
            rates = len(client.keys(KEYS.override_rate_of + "*"))
            faults = []
            if halted - {taken}:
                faults.append(f"it halted {sorted(halted)}")
            if not halted and done.returncode == 0:
                faults.append("it halted nothing and says nothing")
            if rates != len(_BYSTANDERS):
                faults.append(f"{rates} rates are left of {len(_BYSTANDERS)}")
            if "Traceback" in done.stderr:
                faults.append(done.stderr[-200:])
            tally.judge(f"scrapy halt -- {name!r}", "; ".join(faults))


def names(room: Room) -> Tally:
    """Crawl and halt sources of such names."""
    tally = Tally("names")
    _crawled(room, tally)
    _ordered(room, tally)
    if (ROOT / "owned").exists():
        tally.judge("the shell", f"{ROOT / 'owned'} was made")
    return tally
