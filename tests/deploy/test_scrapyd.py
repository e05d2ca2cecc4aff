"""A crawl by scrapyd, as docs/deploy.md has it: deployed, scheduled, cancelled, all over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.gallery import Gallery
from tests.conftest import ROOT
from tests.test_crawl import KEYS, Crawl
from tests.waiting import until

PASSWORD = "S3CRET-of-scrapyd"


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


class Scrapyd:
    """A scrapyd in the `deploy` folder of a copy of the project."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.environ = environ | {"SCRAPYD_HTTP_PORT": str(self.port), "SCRAPYD_PASSWORD": PASSWORD}
        for name in ("setup.py", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder)
        (folder / "scrapy.cfg").write_text((ROOT / "scrapy.cfg").read_text().replace("6800", str(self.port)))
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "crawlproject", folder / "crawlproject", ignore=without)
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        self.log = folder / "scrapyd.log"

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                program("scrapyd"), cwd=self.folder / "deploy", env=self.environ, stdout=log, stderr=log
            )
        until(self._answers, despite=urllib.error.URLError)

    def _answers(self) -> bytes:
        assert self.process.poll() is None, self.log.read_text()
        return self.ask("daemonstatus.json")

    def ask(self, page: str, data: list[tuple[str, str]] | None = None, password: str = PASSWORD) -> bytes:
        """Return what scrapyd answers to a GET, or to a POST of `data`."""
        body = None if data is None else urllib.parse.urlencode(data).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{page}", body)
        login = base64.b64encode(f"crawl:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=60) as reply:
            said: bytes = reply.read()
        return said

    def post(self, page: str, *data: tuple[str, str]) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.ask(page, [("project", "crawlproject"), *data]))
        assert said["status"] == "ok", said
        return said

    def jobs(self) -> dict[str, list[str]]:
        """Return the ids of the jobs by their state."""
        said = json.loads(self.ask("listjobs.json?project=crawlproject"))
        return {state: [job["id"] for job in said[state]] for state in ("pending", "running", "finished")}

    def stop(self) -> None:
        for job in self.jobs()["running"]:  # they would outlive it
            self.post("cancel.json", ("job", job), ("signal", "KILL"))
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)


@pytest.fixture
def scrapyd(crawl: Crawl, tmp_path: Path) -> Iterator[Scrapyd]:
    (tmp_path / "project").mkdir()
    one = Scrapyd(tmp_path / "project", crawl.environ)
    password = one.environ.pop("SCRAPYD_PASSWORD")  # without which it does not start
    with pytest.raises(AssertionError, match="SCRAPYD_PASSWORD"):
        one.start()
    one.environ["SCRAPYD_PASSWORD"] = password
    one.start()
    yield one
    one.stop()


def test_scrapyd_crawls_what_was_deployed_until_it_is_cancelled(crawl: Crawl, scrapyd: Scrapyd) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scrapyd.ask("daemonstatus.json", password="guess")
    deployed = subprocess.run(
        program("scrapyd-deploy"),
        cwd=scrapyd.folder,
        env=scrapyd.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(deployed.stdout.strip().splitlines()[-1])["spiders"] == 2  # images, pages
    shutil.rmtree(scrapyd.folder / "crawlproject")  # from here on there is the egg alone

    crawl.source("photos", 60, pictures=300)
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("photos", *(f"{n}.jpg" for n in range(300)))
        scrapyd.post(
            "schedule.json",
            ("spider", "images"),
            ("jobid", "first"),
            ("setting", "CRAWL_LOG_FORMAT=json"),
            ("setting", "MAX_IDLE_TIME_BEFORE_CLOSE=0"),
        )
        crawl.until(lambda: crawl.redis.xlen(KEYS.image_events) > 60)
        assert scrapyd.jobs()["running"] == ["first"]
        assert scrapyd.post("cancel.json", ("job", "first"))["prevstate"] == "running"
        crawl.until(lambda: scrapyd.jobs()["finished"] == ["first"])

        done = crawl.redis.xlen(KEYS.image_events)
        assert 60 < done < 300
        assert crawl.redis.hget(KEYS.counters, "outstanding") == str(300 - done).encode()
        assert not crawl.redis.keys(KEYS.leases_of + "*")
        assert "Process finished:" in scrapyd.log.read_text()  # with exit code 0

        text = scrapyd.ask("logs/crawlproject/images/first.log").decode()
        assert json.loads(text.splitlines()[-1])["message"] == "Spider closed (shutdown)"
