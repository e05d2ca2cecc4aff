"""A `scrapy monitor` for the tests, as a process; each port that plug-ins have a setting for is a free one."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from crawlproject import config, plugins
from tests.waiting import until

DEADLINE = 30.0  # seconds


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def ports() -> dict[str, str]:
    """Return a free port for each that plug-ins listen at."""
    tables = [config.table(one.settings) for one in plugins.found().values() if one.settings]
    return {name: str(free_port()) for table in tables for name in table if name.endswith("_PORT")}


class Monitor:
    """Runs from `start` to `stop`, each time at the same ports."""

    def __init__(self, environ: Mapping[str, str], log: Path, spider: str | None = None) -> None:
        self.metrics_port = free_port()
        self.environ = {
            **environ,
            **ports(),
            "CRAWL_METRICS_PORT": str(self.metrics_port),
        }
        self.log = log
        self.spider = spider
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [
                sys.executable,
                "-m",
                "scrapy",
                "monitor",
                *(["--spider", self.spider] if self.spider else []),
            ]
            self.process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)
        until(self._answers, despite=OSError)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics").close()
        except urllib.error.HTTPError as error:
            error.close()
        return True

    def stop(self) -> int:
        if self.process is None:
            return 0
        self.process.terminate()
        status = self.process.wait(DEADLINE)
        self.process = None
        return status
