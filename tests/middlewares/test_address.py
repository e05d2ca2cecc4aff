"""Server-side request forgery, tried over real sockets: a whole worker, and addresses it must not connect to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Zone
from tests.test_crawl import KEYS, Crawl, picture, size_for

SITE = "127.0.0.2"  # the only address that is open: redirects come from it

# What stands for the private service in the names of the zone: how each of them resolves.
RECORDS: dict[str, list[list[str] | None]] = {
    "loopback.museum.org": [["127.0.0.1"]],
    "loopback6.museum.org": [["::1"]],
    "mapped.museum.org": [["::ffff:7f00:1"]],
    "nat64.museum.org": [["64:ff9b::7f00:1"]],
    "unspecified.museum.org": [["0.0.0.0"]],
    "unspecified6.museum.org": [["::"]],
    "metadata.museum.org": [["169.254.169.254"]],
    "private.museum.org": [["10.0.0.1"]],
    "both.museum.org": [[SITE, "127.0.0.1"]],
    "both6.museum.org": [[SITE, "::1"]],
    "xn--mnchen-3ya.museum.org": [["127.0.0.1"]],
}

HOSTS = [
    # usual spellings, and those that inet_aton, resolvers and browsers understand
    *("127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.000.000.001", "2130706433", "0x7f000001", "0X7F000001"),
    *("0x7f.0.0.1", "0x7f.1", "0177.0.0.1", "0177.1", "017700000001", "127.0.0.0x1", "%31%32%37.0.0.1"),
    *(
        "127.0.0.1%00.museum.org",
        "１２７.０.０.１",
        "127。0。0。1",
        "127．0．0．1",
        "①②⑦.⓪.⓪.①",
        "127%2e0%2e0%2e1",
    ),
    # other addresses of this machine and its network
    *(
        "0.0.0.0",
        "0",
        "0x0",
        "127.0.0.3",
        "127.255.255.254",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
    ),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "224.0.0.1", "255.255.255.255"),
    # IPv6
    *(
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[0000::0001]",
        "[::]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ),
    *("[64:ff9b::127.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fd00::1]"),
    *("[ff02::1]", "[fec0::1]", "[::ffff:169.254.169.254]"),
    # names
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-localhost", *RECORDS, "LoopBack.Museum.ORG."),
    *("münchen.museum.org", "MÜNCHEN.museum.org"),
    # what IDNA removes from a name (RFC 3454, table B.1): soft hyphen, zero width space
    *(
        "127.0.0\u00ad.1",
        "2130706433\u00ad",
        "\u00ad0x7f.1",
        "0\u00ad177.0.0.1",
        "127\u200b.0.0.1",
        "local\u00adhost",
    ),
]
ODD = [  # whole URLs that parsers disagree on
    "http://museum.org@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@museum.org/",
    "http://127.0.0.1:{port}?@museum.org/",
    "http://127.0.0.1:{port}\\@museum.org/",
    "http://museum.org\\@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://museum.org:80@127.0.0.1:{port}/",
    "http://[::ffff:127.0.0.1]@museum.org:{port}/",
    "https://127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/a",
    "gopher://127.0.0.1:{port}/_a",
    "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    "s3://bucket/a",
]


class Site(BaseHTTPRequestHandler):
    """Sends the number that its path names to the payload of that number; a robots.txt likewise, by its host."""

    protocol_version = "HTTP/1.1"
    payloads: list[str]

    def do_GET(self) -> None:
        number = self.path.strip("/")
        if number == "picture.jpg":
            body = picture(1)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(302 if number.isdigit() else 404)
        if number.isdigit():
            self.send_header("Location", self.payloads[int(number)].encode().decode("latin-1"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Trap:
    """Counts the connections to one port of this machine, at 127.0.0.1 and, where there is one, at ::1."""

    def __init__(self) -> None:
        self.sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self.sockets[0].getsockname()[1]
        with suppress(OSError):
            self.sockets.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        self.caught: list[bytes] = []
        for one in self.sockets:
            threading.Thread(target=self._listen, args=(one,), daemon=True).start()

    def _listen(self, one: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = one.accept()
                connection.settimeout(1)
                self.caught.append(connection.recv(1000))
                connection.close()

    def close(self) -> None:
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    one = Trap()
    yield one
    one.close()


@pytest.fixture
def guarded(tmp_path: Path, environment: dict[str, str], redis_url: str, zone: Zone) -> Iterator[Crawl]:
    """A crawl with one address open, where a site redirects to any given URL."""
    zone.records.update(RECORDS)
    crawl = Crawl(tmp_path, environment | {"CRAWL_ALLOW_NETWORKS": f"{SITE}/32"}, redis_url)
    rows: list[dict[str, Any]] = [
        {"source_name": name, "image_count": size_for(200.0)} for name in ("seeds", "redirects", "elsewhere")
    ]
    rows[2]["hosts"] = ["museum.org", "localhost", "127.0.0.1"]  # used more than once
    (tmp_path / "catalogue.json").write_text(json.dumps(rows))
    yield crawl
    for worker in crawl.workers:
        worker.kill()
        worker.wait()
    for name in RECORDS:
        del zone.records[name]


def test_no_spelling_answer_or_redirect_leads_to_a_private_address(guarded: Crawl, trap: Trap) -> None:
    payloads = [f"http://{host}:{trap.port}/" for host in HOSTS]
    payloads += [url.format(port=trap.port) for url in ODD]
    assert len(payloads) > 60
    Site.payloads = [*payloads, f"//127.0.0.1:{trap.port}/"]
    server = ThreadingHTTPServer((SITE, 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://{SITE}:{server.server_port}"
    for number, url in enumerate(payloads):
        seed = {"url": url, "uuid": f"seed-{number}", "source": "seeds"}
        guarded.redis.lpush(KEYS.seeds, json.dumps(seed))
    for number in range(len(Site.payloads)):
        seed = {"url": f"{site}/{number}", "uuid": f"redirect-{number}", "source": "redirects"}
        guarded.redis.lpush(KEYS.seeds, json.dumps(seed))
    guarded.redis.lpush(KEYS.seeds, json.dumps({"url": f"{site}/picture.jpg", "uuid": "good", "source": "seeds"}))
    try:
        guarded.run(
            CRAWL_ALLOW_PORTS=str(trap.port), CRAWL_MAX_RETRIES="0", http_proxy=f"http://127.0.0.1:{trap.port}"
        )
    finally:
        server.shutdown()
        server.server_close()
    assert trap.caught == []
    assert [event["identifier"] for event in guarded.events(KEYS.image_events)] == ["good"]  # it did crawl
    dead = guarded.dead()
    rot = guarded.events(KEYS.link_rot_events)  # a relative URL leads back to the site, which has no such page
    assert guarded.redis.xlen(KEYS.dead) + len(rot) == len(payloads) + len(Site.payloads)
    reasons = {payloads[int(name[5:])]: reason for name, reason in dead.items() if name.startswith("seed-")}
    said = ("address refused: ", "unusual spelling of an address", "URL ", "invalid URL", "dns: ")
    assert [pair for pair in reasons.items() if not pair[1].startswith(said)] == []
    assert sum(reason.startswith("address refused: ") for reason in reasons.values()) > 40


def test_networks_are_closed_by_the_setting_and_behind_nat64(guarded: Crawl, trap: Trap, zone: Zone) -> None:
    names = {"closed.museum.org": "127.0.0.1", "translated.museum.org": "2a00:6464::7f00:1"}
    zone.records.update({name: [[address]] for name, address in names.items()})
    hosts = ["127.0.0.1", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2a00:6464::127.0.0.1]", *names]
    hosts += ["168.63.129.16", "192.80.8.124"]
    Site.payloads = [f"http://{host}:{trap.port}/" for host in hosts]
    server = ThreadingHTTPServer((SITE, 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://{SITE}:{server.server_port}"
    for number, url in enumerate(Site.payloads):
        for kind, place in (("seeds", url), ("redirects", f"{site}/{number}")):
            seed = {"url": place, "uuid": f"{kind}-{number}", "source": kind}
            guarded.redis.lpush(KEYS.seeds, json.dumps(seed))
    guarded.redis.lpush(KEYS.seeds, json.dumps({"url": f"{site}/picture.jpg", "uuid": "good", "source": "seeds"}))
    try:
        guarded.run(
            CRAWL_ALLOW_NETWORKS="127.0.0.0/8",
            CRAWL_DENY_NETWORKS="127.0.0.1/32",
            CRAWL_NAT64_PREFIXES="2a00:6464::/96",
            CRAWL_ALLOW_PORTS=str(trap.port),
            CRAWL_MAX_RETRIES="0",
        )
    finally:
        server.shutdown()
        server.server_close()
        for name in names:
            del zone.records[name]
    assert trap.caught == []
    assert [event["identifier"] for event in guarded.events(KEYS.image_events)] == ["good"]
    dead = guarded.dead()
    assert dead.keys() == {f"{kind}-{number}" for kind in ("seeds", "redirects") for number in range(len(hosts))}
    for name, reason in dead.items():
        cloud = hosts[int(name.partition("-")[2])] in {"168.63.129.16", "192.80.8.124"}
        assert reason.startswith("address refused: cloud " if cloud else "address refused: address "), reason
        assert ("CRAWL_DENY_NETWORKS closes 127.0.0.1/32" in reason) is not cloud


def test_a_robots_txt_that_leads_to_a_private_address_refuses_its_pictures(
    guarded: Crawl, trap: Trap, tmp_path: Path
) -> None:
    class Robots(Site):
        """Its robots.txt is elsewhere."""

        def do_GET(self) -> None:
            self.path = "/0" if self.path == "/robots.txt" else self.path
            super().do_GET()

    Site.payloads = [f"http://localhost:{trap.port}/robots.txt"]
    server = ThreadingHTTPServer((SITE, 0), Robots)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seed = {"url": f"http://{SITE}:{server.server_port}/picture.jpg", "uuid": "a", "source": "seeds"}
    guarded.redis.lpush(KEYS.seeds, json.dumps(seed))
    try:
        guarded.run(CRAWL_ALLOW_PORTS=str(trap.port))
    finally:
        server.shutdown()
        server.server_close()
    assert trap.caught == []
    assert guarded.dead()["a"].startswith("robots.txt: robots.txt at a refused address: loopback address")
