"""What the demo shows while it crawls."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from demo.gallery import Arrival
from demo.images import LATELY, progress
from demo.sources import SOURCES


def test_each_source_is_shown_with_its_progress_and_rate() -> None:
    first, *_ = SOURCES
    done = {"thumbnails": first.pictures, "link_rot": first.link_rot, "failed": len(first.unreadable)}
    tallies: dict[str, Any] = {"sources": {first.name: done}}
    arrivals = [Arrival(t=100.0 + number / 10, source=first.name, path="/a", status=200) for number in range(100)]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(progress(tallies, arrivals, now=110.0))
    head, row, *others = captured.get().splitlines()
    assert head.split() == ["source", "done", "of", "seeds", "rate", "allowed", "seen", "now"]
    lately = sum(arrival["t"] > 110.0 - LATELY for arrival in arrivals) / LATELY
    assert row.split() == [first.name, str(first.seeds), str(first.seeds), "180.0/s", f"{lately:.1f}/s"]
    assert [line.split()[0] for line in others] == [source.name for source in SOURCES[1:]]
    assert all(line.split()[1] == "0" for line in others)
