"""What `scrapy dataset` says while it runs, and at its end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from crawlproject.contrib.datasets.commands.dataset import summary_of
from crawlproject.contrib.datasets.making import CrawlScreen, Making, about_crawl
from crawlproject.contrib.datasets.targets import ParquetTarget
from crawlproject.state.client import State
from tests.status.test_snapshot import sample_at

SAID: dict[str, Any] = {
    "ok": 297, "gone": 0, "failed": 4, "tried_again": 0, "duplicates": 0, "excluded": 0, "rejected": 0,
    "seconds": 9.0, "whole": True, "slowest": [], "reasons": {}, "remarks": [],
}  # fmt: skip


class Lines(CrawlScreen):
    """What was said, and shown, instead of a terminal."""

    def __init__(self) -> None:
        super().__init__("mine")
        self.is_live, self.lines = True, cast("list[str]", [])

    def say(self, text: str) -> None:
        self.lines.append(text)

    def show(self, line: str) -> None:
        self.lines.append(line)


def making(screen: Lines) -> Making:
    return Making({}, ParquetTarget, "out", argparse.Namespace(), screen, {})


@pytest.mark.parametrize(
    ("called", "spelled"),
    [
        ("bin/crawlproject", "crawlproject"),
        ("scrapy", "scrapy"),
        ("crawlproject/__main__.py", "python -m crawlproject"),
    ],
)
def test_commands_are_about_the_crawl_and_spelled_as_called(
    monkeypatch: pytest.MonkeyPatch, called: str, spelled: str
) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE", raising=False)
    for written in ("scrapy", "crawlproject"):
        said = about_crawl(f"if it is yours: {written} rate 127.0.0.1 5", "dataset-out-1")
        assert said == f"if it is yours: CRAWL_NAMESPACE=dataset-out-1 {spelled} rate 127.0.0.1 5"


@pytest.mark.parametrize(("again", "rows"), [(0, "301 rows"), (4, "305 rows, of 301 images")])
def test_the_summary_tells_rows_of_retries_from_images(again: int, rows: str) -> None:
    assert next(summary_of(SAID | {"tried_again": again}, "out", Path("l"))) == (
        f"out: {rows}, 297 ok, 0 gone, 4 failed (9 s)"
    )


def test_the_summary_tells_how_to_retry() -> None:
    lines = list(summary_of(SAID | {"reasons": {"timeout: it's late": 3, "other": 1}}, "out", Path("l")))
    assert lines[-2].endswith("""the same command: scrapy dead retry --reason 'timeout: it'"'"'s late'""")


async def test_the_commonest_reason_of_failures_is_said_once(state: State) -> None:
    screen = Lines()
    one = making(screen)
    reasons = ["address refused: loopback: CRAWL_ALLOW_NETWORKS opens networks"] * 3
    await one.tell_why(state, sample_at(1.0))
    for count in (1, 3):
        for reason in reasons[:count]:
            await state.redis.xadd(state.keys.dead, {"reason": reason})
        await one.tell_why(state, sample_at(2.0, dead=count))
    assert screen.lines == [f"failed: {reasons[0]}"]
    for _ in range(9):
        await state.redis.xadd(state.keys.dead, {"reason": "status 503 (after 3 attempts)"})
    await one.tell_why(state, sample_at(3.0, dead=13))
    assert screen.lines[1:] == ["failed: status 503 (after 3 attempts)"]
