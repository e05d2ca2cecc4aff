"""Server-side request forgery, tried over real sockets: a whole worker, and addresses it must not connect to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile.targets import HOSTS, ODD, RECORDS, Trap
from tests.conftest import Zone
from tests.test_crawl import KEYS, Crawl, picture, size_for

SITE = "127.0.0.2"  # the only address that is open: redirects come from it


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
    said = ("address refused: ", "URL ", "invalid URL", "dns: ")
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
