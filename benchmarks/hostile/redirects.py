"""A site that redirects a real worker to where it must not go."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from benchmarks.hostile.crawling import IMAGE, crawl
from benchmarks.hostile.room import Room, Tally
from benchmarks.hostile.server import ANY, Answer, Server, plain
from benchmarks.hostile.targets import HOSTS, ODD, RECORDS, SITE, Trap
from benchmarks.name_server import Zone, served

SECRET = "S3CRET"
_STATUSES = ("300 Multiple Choices", "301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent")


def good_picture() -> bytes:
    """Return a small JPEG."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((90, 60)).save(out, "JPEG")
    return out.getvalue()


def to(location: str, status: str = "302 Found", *more: str) -> Answer:
    """Redirect."""
    return plain(b"", f"Location: {location}", *more, status=status)


def _answers(port: int) -> dict[str, tuple[Answer, str | None]]:
    """Return how paths are answered, and what their ends must have in them; None: anything but a picture."""
    trap = f"http://127.0.0.1:{port}/"
    made: dict[str, tuple[Answer, str | None]] = {}
    for number, host in enumerate(HOSTS):
        made[f"host-{number}"] = to(f"http://{host}:{port}/"), None
    for number, url in enumerate(ODD):
        made[f"odd-{number}"] = to(url.format(port=port)), None
    for number, status in enumerate(_STATUSES):
        made[f"status-{number}"] = to(trap, status), None
    for number, host in enumerate(RECORDS):
        made[f"tls-{number}"] = to(f"https://{host}:{port}/"), None
    made |= {
        "scheme-relative": (to(f"//127.0.0.1:{port}/"), "refused"),
        "two-locations": (to("/good", "302 Found", f"Location: {trap}"), None),
        "refresh": (plain(b"", f"Refresh: 0; url={trap}"), "empty body"),
        "meta": (plain(f'<meta http-equiv="refresh" content="0;url={trap}">'.encode()), "not a picture"),
        "link-header": (plain(b"", f"Link: <{trap}>; rel=preload", f"Content-Location: {trap}"), "empty body"),
        "alt-svc": (plain(good_picture(), f'Alt-Svc: h2="127.0.0.1:{port}"; ma=86400'), IMAGE),
        "chain-to-trap": (to("/chain-1"), None),
        "chain-1": (to("/chain-2"), None),
        "chain-2": (to(trap), None),
        "loop": (to("/loop"), "max redirections"),
        "loop-of-two": (to("/loop-back"), "max redirections"),
        "loop-back": (to("/loop-of-two"), "max redirections"),
        "loop-by-query": (to("?again"), None),
        "userinfo": (to(f"http://me:{SECRET}@{SITE}/good"), "user name or password"),
        "user": (to(f"//{SECRET}@{SITE}/good"), "user name or password"),
        "escape": (to("http://a\x1b[31m\x9b2J.museum.org/"), None),
        "newline": (plain(b"", f"Location: /good\r\n X: {trap}", status="302 Found"), None),
        "no-location": (plain(b"", status="302 Found"), "status 302"),
        "empty-location": (to(""), None),
        "long": (to("http://open.museum.org/" + "x" * 9_000), "redirect to a URL of"),
        "huge": (to("http://open.museum.org/" + "x" * 200_000), None),
        "port-0": (to("http://open.museum.org:0/"), None),
        "port-99999": (to("http://open.museum.org:99999/"), None),
        "bracket": (to("http://[museum"), None),
        "file": (to("file:///etc/passwd"), None),
        "javascript": (to("javascript:alert(1)"), None),
        "data": (to("data:image/gif;base64,R0lGODlhAQABAAAAACw="), None),
        "good": (plain(good_picture()), IMAGE),
        "to-good": (to("/good"), IMAGE),
    }
    return made


def redirects(room: Room) -> Tally:
    """Have a worker crawl the redirects, and their targets as seeds; a trap counts who comes."""
    tally, zone, trap = Tally("live redirects"), Zone(), Trap()
    zone.records.update(RECORDS)
    answers = dict(room.some(list(_answers(trap.port).items())))
    targets = [f"http://{host}:{trap.port}/" for host in HOSTS] + [url.format(port=trap.port) for url in ODD]
    robots = {"robots.txt": to(f"http://localhost:{trap.port}/robots.txt"), ANY: plain(good_picture())}
    with (
        served(zone) as names,
        Server({path: answer for path, (answer, _) in answers.items()}, SITE) as server,
        Server(robots, SITE) as guarded,
    ):
        seeds: list[dict[str, Any]] = [{"url": f"{server.url}/{path}", "uuid": path} for path in answers]
        seeds += [{"url": url, "uuid": f"seed-{number}"} for number, url in enumerate(room.some(targets))]
        seeds += [{"url": f"{guarded.url}/a", "uuid": "robots"}]
        ran = crawl(
            room.folder,
            seeds,
            # Where the redirects lead, at a rate that does not take all day; used more than once
            [
                {
                    "source_name": "elsewhere",
                    "image_count": 10**9,
                    "hosts": ["museum.org", "localhost", "127.0.0.1"],
                }
            ],
            CRAWL_ALLOW_NETWORKS=f"{SITE}/32",
            CRAWL_ALLOW_PORTS=trap.port,
            CRAWL_DNS_SERVERS=names,
            http_proxy=f"http://127.0.0.1:{trap.port}",
        )
    trap.close()
    for seed in seeds:
        name = seed["uuid"]
        wanted = answers[name][1] if name in answers else None
        fault = ran.fault(name, wanted)
        if not fault and wanted is None and IMAGE in ran.ends[name]:
            fault = "became an image"
        tally.judge(f"{name}, {seed['url']}", fault)
    tally.judge("the trap", f"connections to a private address: {trap.caught}" if trap.caught else "")
    tally.judge("the log", "it has a password" if SECRET in ran.log else "")
    ran.judge(tally)
    return tally
