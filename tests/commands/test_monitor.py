"""`scrapy monitor`: what it says before it starts, and where it serves."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from crawlproject import plugins
from tests.monitors import free_port, ports

if TYPE_CHECKING:
    from tests.conftest import Scrapy


def test_a_port_that_is_taken_is_named(scrapy: Scrapy) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        for command in (("monitor",), ("crawl", "images")):
            said = scrapy(*command, "-s", f"CRAWL_METRICS_PORT={port}")
            assert said.returncode == 1
            (words,) = [line for line in said.stderr.splitlines() if "INFO" not in line and "CRAWL_" in line]
            assert words.startswith(
                f"scrapy {command[0]}: CRAWL_METRICS_PORT={port} is not available at 127.0.0.1"
            )
            assert "Traceback" not in said.stderr


def test_as_json_it_says_where_it_serves(environment: dict[str, str], tmp_path: Path) -> None:
    metrics = free_port()
    environ = {
        **environment,
        "CRAWL_METRICS_PORT": str(metrics),
        **ports(),
    }
    command = [sys.executable, "-m", "scrapy", "monitor", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as monitor:
        assert monitor.stdout is not None
        told = json.loads(monitor.stdout.readline())
        assert told["metrics"] == f"http://127.0.0.1:{metrics}/metrics"
        assert told.keys() == {"metrics", *plugins.offered("services")}
        with urllib.request.urlopen(told["metrics"]) as answer:  # it serves by now
            assert answer.status == 200
        monitor.terminate()
        assert monitor.stdout.read() == b""
        assert monitor.wait(60) == 0
