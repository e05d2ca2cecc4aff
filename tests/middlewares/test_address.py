"""Server-side request forgery, tried over real sockets: a whole worker, and addresses it must not connect to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile.targets import HOSTS, ODD, RECORDS, SITE
from tests.conftest import Zone
from tests.sites import Handler, served
from tests.test_crawl import KEYS, Crawl, picture, size_for


class Site(Handler):
    """Sends the number that its path names to the payload of that number; a robots.txt likewise, by its host."""

    payloads: list[str]

    def get(self) -> None:
        number = self.path.strip("/")
        if number.isdigit():
            self.answer(302, Location=self.payloads[int(number)].encode().decode("latin-1"))
        else:
            body = picture(1) if number == "picture.jpg" else b""
            self.answer(200 if body else 404, body)


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


@pytest.fixture
def trap() -> Iterator[Trap]:
    trap = Trap()
    yield trap
    for one in trap.sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
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
    crawl.stop()
    for name in RECORDS:
        del zone.records[name]


def test_no_spelling_answer_redirect_or_robots_txt_leads_to_a_private_address(guarded: Crawl, trap: Trap) -> None:
    payloads = [f"http://{host}:{trap.port}/" for host in HOSTS]
    payloads += [url.format(port=trap.port) for url in ODD]
    assert len(payloads) > 60
    Site.payloads = [*payloads, f"//127.0.0.1:{trap.port}/", f"http://localhost:{trap.port}/robots.txt"]

    class Robots(Site):
        """Its robots.txt is elsewhere: at the last of the payloads."""

        def get(self) -> None:
            self.path = f"/{len(self.payloads) - 1}" if self.path == "/robots.txt" else self.path
            super().get()

    def seed(name: str, url: str, source: str) -> None:
        guarded.redis.lpush(KEYS.seeds, json.dumps({"url": url, "uuid": name, "source": source}))

    def at(server: Any) -> str:
        return f"http://{SITE}:{server.server_port}"

    with served(Site, host=SITE) as site, served(Robots, host=SITE) as other:
        for number, url in enumerate(payloads):
            seed(f"seed-{number}", url, "seeds")
        for number in range(len(Site.payloads)):
            seed(f"redirect-{number}", f"{at(site)}/{number}", "redirects")
        seed("good", f"{at(site)}/picture.jpg", "seeds")
        seed("robots", f"{at(other)}/picture.jpg", "seeds")
        guarded.run(
            CRAWL_ALLOW_PORTS=str(trap.port), CRAWL_MAX_RETRIES="0", http_proxy=f"http://127.0.0.1:{trap.port}"
        )
    assert trap.caught == []
    assert [event["identifier"] for event in guarded.events(KEYS.image_events)] == ["good"]  # it did crawl
    dead = guarded.dead()
    rot = guarded.events(KEYS.link_rot_events)  # a relative URL leads back to the site, which has no such page
    assert guarded.redis.xlen(KEYS.dead) + len(rot) == len(payloads) + len(Site.payloads) + 1
    reasons = {payloads[int(name[5:])]: reason for name, reason in dead.items() if name.startswith("seed-")}
    said = ("address refused: ", "URL ", "invalid URL", "dns: ")
    assert [pair for pair in reasons.items() if not pair[1].startswith(said)] == []
    assert sum(reason.startswith("address refused: ") for reason in reasons.values()) > 40
    assert dead["robots"].startswith("robots.txt: robots.txt at a refused address: loopback address")
