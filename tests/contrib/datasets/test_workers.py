"""The workers of `scrapy dataset`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crawlproject.contrib.datasets.workers import Workers
from crawlproject.errors import CrawlprojectError
from tests.waiting import until


class Failing(Workers):
    """A worker that does nothing but end."""

    script = ""

    def _start(self, log: Path) -> subprocess.Popen[bytes]:
        log.write_text("settings\nthe reason\n\n")
        return subprocess.Popen(["sh", "-c", self.script])


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", r"a worker ended with 3: the reason \(.*/worker-1.log\)"),
        ("kill -9 $$", r"11 workers were killed, the last by signal 9: .* \(.*/worker-1.log\)"),
    ],
)
def test_workers_that_cannot_work_are_not_started_for_ever(tmp_path: Path, script: str, reason: str) -> None:
    workers = Failing(1, [], tmp_path, lambda _: None)
    workers.script = script
    with pytest.raises(CrawlprojectError, match=reason):
        until(workers.look)
