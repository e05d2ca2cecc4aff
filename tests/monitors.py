"""A `scrapy monitor` for the tests, as a process; each port that plug-ins have a setting for is a free one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crawlproject import config, plugins
from demo.redis_servers import free_port

DEADLINE = 120.0  # seconds


def ports() -> dict[str, Any]:
    """Return a free port for each that plug-ins listen at."""
    tables = [config.table(one.settings) for one in plugins.found().values() if one.settings]
    return {name: str(free_port()) for table in tables for name in table if name.endswith("_PORT")}


class Monitor:
    """Runs from `start` to `stop`, each time at the same ports."""

    def __init__(self, environ: Mapping[str, str], log: Path, spider: str | None = None) -> None:
        self.environ = {**environ, **ports()}
        self.log = log
        self.spider = spider
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "scrapy", "monitor", "--json"]
        command += ["--spider", self.spider] if self.spider else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environ, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        told = self.process.stdout.readline()  # once it serves
        assert told, self.log.read_text()
        assert json.loads(told).keys() == plugins.offered("services").keys()

    def stop(self) -> int:
        if self.process is None:
            return 0
        self.process.terminate()
        self.process.communicate(timeout=DEADLINE)
        status = self.process.returncode
        self.process = None
        return status
