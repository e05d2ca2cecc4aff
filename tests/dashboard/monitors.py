"""A `scrapy monitor` for the tests, as a process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

DEADLINE = 30.0  # seconds


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Monitor:
    """Runs from `start` to `stop`, each time at the same ports."""

    def __init__(self, environ: Mapping[str, str], log: Path) -> None:
        self.port = free_port()
        self.environ = {
            **environ,
            "CRAWL_DASHBOARD_PORT": str(self.port),
            "CRAWL_METRICS_PORT": str(free_port()),
            "CRAWL_MONITOR_FILE": str(log.with_suffix(".jsonl")),
        }
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "scrapy", "monitor"]
            self.process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/login"):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> int:
        if self.process is None:
            return 0
        self.process.terminate()
        status = self.process.wait(DEADLINE)
        self.process = None
        return status
