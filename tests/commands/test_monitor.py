"""`scrapy monitor`: where it serves."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

from crawlproject import plugins
from tests.monitors import ports


def test_as_json_it_says_where_it_serves(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "scrapy", "monitor", "--json"]
    environ = {**environment, **ports()}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as monitor:
        assert monitor.stdout is not None
        told = json.loads(monitor.stdout.readline())
        assert told.keys() == plugins.offered("services").keys()
        for url in told.values():
            with urllib.request.urlopen(url) as answer:  # it serves by now
                assert answer.status == 200
        monitor.terminate()
        assert monitor.stdout.read() == b""
        assert monitor.wait(60) == 0
