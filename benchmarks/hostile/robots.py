"""A robots.txt that is a bomb, from a site of its own each, while a neighbour is crawled by the same worker."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from typing import Any

from benchmarks.hostile.answers import CODERS
from benchmarks.hostile.crawling import IMAGE, crawl
from benchmarks.hostile.room import Room, Tally
from benchmarks.hostile.server import ANY, ENDLESS, Answer, Server, coded, drip, good_picture, plain, to

_LARGEST = 500 * 1024  # bytes that are read of a robots.txt
_NEIGHBOURS = 60  # pictures of a site that does nothing wrong
_PATHS = {"short": "", "long": "a" * 500, "longest": "a" * 8_000}  # wildcards have something to look through
_SLOW = ("delays", "digits")  # ask for a minute between requests: of these sites one picture is enough


def _texts() -> dict[str, bytes]:
    """Return texts that are slow to read or to judge by."""
    group = b"User-agent: *\n"
    letters = [bytes((a, b, c)) for a in range(97, 123) for b in range(97, 123) for c in range(97, 123)]

    def rules(line: bytes, count: int = 30_000) -> bytes:
        return group + b"\n".join(line % letters[number % len(letters)] for number in range(count))

    return {
        "zeros": bytes(20_000_000),
        "one line": group + b"Disallow: /" + b"x" * _LARGEST,
        "stars": group + b"Disallow: /" + b"*" * _LARGEST,
        "stars and letters": group + b"Disallow: /" + b"*a" * (_LARGEST // 2),
        "30,000 wildcards": rules(b"Disallow:/*a%s"),
        "30,000 wildcards and ends": rules(b"Disallow:/*a*%s$"),
        "30,000 of many wildcards": rules(b"Allow:*a*a*a*%s"),
        "60,000 rules": rules(b"Disallow:/%s", 60_000),
        "agents": b"".join(b"User-agent: %s\n" % letter for letter in letters) + b"Disallow: /\n",
        "groups": b"".join(b"User-agent: *\nDisallow: /%s\n" % letter for letter in letters),
        "escapes": rules(b"Disallow: /%%2%%%%41\x1b[31m%s"),
        "line ends": group + b"\r" * _LARGEST,
        "byte order marks": b"\xef\xbb\xbf" * (_LARGEST // 3),
        "not UTF-8": group + b"\xff\xfe\x80" * (_LARGEST // 3),
        "delays": group + b"Crawl-delay: 1e308\nCrawl-delay: nan\nCrawl-delay: -1\nRequest-rate: 0/0\n" * 5_000,
        "usages": group + b"Content-Usage: / train-ai=n\n" * 15_000,
        "digits": group + b"Crawl-delay: " + b"9" * _LARGEST,
        "comments": group + b"#" * _LARGEST + b"\nDisallow: /private\n",
        "page": b"<html><body>" + b"<p>Disallow: /</p>\n" * 20_000,
    }


def _bombs() -> dict[str, Answer]:
    made = {name: plain(text) for name, text in _texts().items()}
    text = b"User-agent: *\nDisallow: /private\n" + bytes(20_000_000)
    for name, code in CODERS.items():
        made[f"{name} bomb"] = coded(name, code(text))
        made[f"{name} of a bomb in gzip"] = coded(f"{name}, gzip", CODERS["gzip"](code(text)))
        made[f"{name} of a bomb in deflate"] = coded(f"{name}, deflate", CODERS["deflate"](code(text)))
        made[f"{name} bomb called gzip"] = coded("gzip", code(text))
        made[f"{name} bomb cut short"] = coded(name, code(text)[:-20])
        for layers in (3, 10):
            body = text
            for _ in range(layers):
                body = code(body)
            made[f"{layers} layers of {name}"] = coded(", ".join([name] * layers), body)
    stored = b"\x78\x01" + b"\0\x01\0\xfe\xff\0" * 80_000
    made["stored deflate"] = coded("deflate", stored)
    made["stored deflate in gzip"] = coded("deflate, gzip", CODERS["gzip"](stored * 5))
    made["100,000 members of gzip"] = coded("gzip", gzip.compress(b"", mtime=0) * 25_000)
    made["500 codings"] = coded(", ".join(["gzip"] * 500), b"")
    made["unknown coding"] = coded("x" * 5_000, b"Disallow: /")
    made |= ENDLESS | {
        "drip": drip,
        "loop": to("/robots.txt"),
        "loop by query": to("/robots.txt?again"),
        "to a long URL": to("/" + "x" * 100_000),
        "to a file": to("file:///etc/passwd"),
        "to userinfo": to("http://me:secret@127.0.0.1/robots.txt"),
    }
    return made


def robots_bombs(room: Room) -> Tally:
    """Have one worker crawl sites with such a robots.txt; a neighbour's pictures are fetched all the same."""
    tally = Tally("robots.txt bombs")
    bombs = dict(room.some(list(_bombs().items())))
    picture = plain(good_picture())
    with ExitStack() as stack:
        neighbour = stack.enter_context(Server({"robots.txt": plain(b"User-agent: *\nAllow: /\n"), ANY: picture}))
        seeds: list[dict[str, Any]] = []
        for number, (name, bomb) in enumerate(bombs.items()):
            site = stack.enter_context(Server({"robots.txt": bomb, ANY: picture}))
            source = f"site-{number}"  # each its own: a delay that one asks for holds back no other
            seeds += [
                {"url": f"{site.url}/{path}{number}", "uuid": f"{name}, {what}", "source": source}
                for what, path in list(_PATHS.items())[: 1 if name in _SLOW else 3]
            ]
        good = [
            {"url": f"{neighbour.url}/{number}", "uuid": f"neighbour {number}"} for number in range(_NEIGHBOURS)
        ]
        ran = crawl(room.folder, [*good, *seeds], {seed["source"] for seed in seeds}, DOWNLOAD_TIMEOUT=4)
    for seed in seeds:
        tally.judge(seed["uuid"], ran.fault(seed["uuid"], None))
    for seed in good:
        tally.judge(seed["uuid"], ran.fault(seed["uuid"], IMAGE))
    ran.judge(tally)
    return tally
