"""What the demo on a Redis Cluster says of its outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redis.crc import key_slot

from demo.cluster import SHARDS, each_ended_once, longest_pause, tag_of
from demo.images import SEEDS
from demo.sources import SOURCES


def test_more_than_one_master_has_sources_of_the_demo() -> None:
    assert len({key_slot(tag_of(source.name).encode()) * 3 // 16_384 for source in SOURCES}) > 1
    assert len({tag_of(source.name) for source in SOURCES}) <= SHARDS


def test_a_pause_begins_with_the_kill_and_ends_with_a_request() -> None:
    assert longest_pause([1.0, 9.0, 9.5, 12.0, 12.1], since=8.0) == 2.5
    assert longest_pause([1.0, 12.0], since=8.0) == 4.0
    assert longest_pause([1.0, 8.0], since=8.0) is None


@pytest.mark.parametrize(("lost", "again", "good"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_a_seed_that_is_lost_or_there_twice_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: int, again: int, good: bool
) -> None:
    seeds = [*range(SEEDS - lost), *range(again)]
    lines = [json.dumps({"event": "link_rot", "identifier": str(seed)}) for seed in seeds]
    half = len(lines) // 2
    (tmp_path / "events.00.jsonl").write_text("\n".join(lines[:half]))
    (tmp_path / "events.07.jsonl").write_text("\n".join([*lines[half:], json.dumps({"event": "crawl_halted"})]))
    assert each_ended_once(tmp_path) is good
    assert f"{SEEDS - lost} of {SEEDS} seeds, {again} of them again" in capsys.readouterr().out
