"""What a worker shows on a terminal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from demo.gallery import Gallery
from tests.commands.test_top import Terminal, environment_of_terminals, top
from tests.conftest import ROOT
from tests.test_crawl import Crawl
from tests.waiting import PATIENCE_S

__all__ = ["environment_of_terminals"]


@pytest.fixture
def project(environment_of_terminals: dict[str, str], crawl: Crawl) -> dict[str, str]:
    """The environment of a worker on a terminal, in a project of its own."""
    crawl.environ |= {"PYTHONPATH": str(ROOT), "SCRAPY_SETTINGS_MODULE": "crawlproject.settings"}
    return environment_of_terminals | crawl.environ


def ended(terminal: Terminal) -> int | None:
    """Read until the worker has ended; return its status."""
    deadline = time.monotonic() + PATIENCE_S
    while terminal.process.poll() is None and time.monotonic() < deadline:
        terminal.read(0.1)
    return terminal.process.returncode


@pytest.mark.slow
def test_a_terminal_shows_a_line_and_what_asks_for_action_and_the_rest_is_in_a_file(
    crawl: Crawl, project: dict[str, str], tmp_path: Path
) -> None:
    crawl.source("museum", rate=20, pictures=60)
    worker = ("-m", "scrapy", "crawl", "images")
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("museum", *(f"{n}.jpg" for n in range(60)), "missing.jpg")
        crawl.command("halt --new other")  # which the log tells as JSON
        with top(project, command=worker, cwd=tmp_path) as terminal:
            terminal.until(lambda text: "/61 images, " in text and "/s, " in text and "1 source" in text)
            terminal.until(lambda text: "WARNING: other was put on permanent halt" in text)
            text = terminal.until(lambda text: "61/61 images, " in text and ", 1 gone" in text)
            assert ended(terminal) == 0
    log = tmp_path / ".crawl" / "logs" / "images.log"
    first, *lines = text.splitlines()
    assert first.replace("\n", "").startswith("log: ")
    assert len([line for line in lines if " images, " in line]) == 1  # rewritten in place
    assert '"event"' not in text and "Scrapy 2." not in text and "INFO" not in text
    assert '"event":"crawl_halted"' in log.read_text() and "Scrapy 2." in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("given", [("--logfile", "mine.log"), ("--loglevel", "INFO"), ("--nolog",)])
def test_who_says_how_to_log_has_no_line(
    crawl: Crawl, project: dict[str, str], tmp_path: Path, given: tuple[str, ...]
) -> None:
    crawl.source("museum", rate=20)
    with top(project, *given, command=("-m", "scrapy", "crawl", "images"), cwd=tmp_path) as terminal:
        ended(terminal)
        text = terminal.until(lambda _: True)
    assert "/0 images, " not in text
    assert not (tmp_path / ".crawl" / "logs").exists()
    assert ("Scrapy" in text) == (given[0] == "--loglevel")
