"""How far a crawl is, in a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawlproject.state.calls import Pause
from crawlproject.status.progress import Progress
from tests.status.test_snapshot import sample_at, source

MUSEUM = source("museum", rate_limit=50.0, effective_rate=49.99525, queued=88, eta_s=1.76)
SLOW = source(
    "127.0.0.1",
    rate_limit=0.2,
    effective_rate=0.2,
    queued=500,
    eta_s=2500.0,
    reason="minimum: its size is unknown",
)


def test_a_line_tells_what_was_done_since_the_first_sample_and_how_long_the_rest_takes() -> None:
    progress = Progress()
    before = {"thumbnails": 1_000, "link_rot": 7, "failed": 9}
    assert progress.line(sample_at(100.0, outstanding=500, totals=before)) == "0/500 images, 0/s"
    after = {"thumbnails": 1_400, "link_rot": 17, "failed": 11}
    for _ in range(2):  # the rate is over the last ten seconds
        line = progress.line(sample_at(110.0, MUSEUM, outstanding=80, seeds=8, totals=after))
    assert line == "412/500 images, 41/s, 10 gone, 2 failed, 1 source, ETA 0:03"


def test_with_whole_it_tells_all_that_was_ever_done() -> None:
    line = Progress(whole=True).line(sample_at(100.0, totals={"thumbnails": 480, "link_rot": 20}))
    assert line == "500/500 images, 0/s, 20 gone"


def test_with_whole_a_retried_dead_letter_counts_once() -> None:
    line = Progress(whole=True).line(sample_at(100.0, totals={"thumbnails": 297, "failed": 8}, dead=4))
    assert line == "301/301 images, 0/s, 4 failed"


def test_own_spiders_have_requests() -> None:
    made = sample_at(100.0, totals={"fetched": 10, "link_rot": 2, "failed": 1}, dead=1)
    assert Progress(whole=True).line(replace(made, spider="mine")) == "11/11 requests, 0/s, 2 gone, 1 failed"


def test_a_source_that_takes_long_for_want_of_a_size_is_named() -> None:
    line = Progress().line(sample_at(100.0, MUSEUM, SLOW, outstanding=588))
    assert line == "0/588 images, 0/s, 2 sources, ETA 41:40, slow: 127.0.0.1 (0.2/s)"


def test_the_rate_counts_from_when_something_is_done() -> None:
    progress = Progress()
    for at, done in ((100.0, 0), (103.0, 0), (104.0, 40), (105.0, 80)):
        line = progress.line(sample_at(at, outstanding=500, totals={"thumbnails": done}))
    assert line.startswith("80/580 images, 40/s")


@pytest.mark.parametrize(
    ("kind", "ends"),
    [("no pulse", "starting"), ("no worker", "starting"), ("paused", "NOTHING GOES OUT: full")],
)
def test_it_tells_why_nothing_goes_out(kind: str, ends: str) -> None:
    line = Progress().line(sample_at(100.0, MUSEUM, outstanding=88, pause=Pause(kind, "full")))
    assert line.endswith(f", {ends}")


def test_the_slowest_sources_are_those_that_were_worked_at_longest() -> None:
    progress = Progress()
    progress.line(sample_at(100.0, MUSEUM, SLOW, outstanding=588))
    progress.line(sample_at(190.0, SLOW, outstanding=500))
    assert progress.slowest() == [
        "127.0.0.1 had work for 1:30, at 0.2 requests a second (minimum: its size is unknown)",
        "museum had work for 0:00, at 50 requests a second (by size)",
    ]
