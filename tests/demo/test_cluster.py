"""What the demo on a Redis Cluster says of its outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.cluster import each_ended_once
from demo.images import SEEDS


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
