"""Which worker keeps to which shards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from benchmarks.homes import kept, moved
from crawlproject.frontier.homes import Homes, homes


@pytest.mark.parametrize(("workers", "shards"), [(1, 2), (2, 8), (4, 64), (12, 64), (40, 16)])
def test_no_worker_has_much_more_than_its_part(workers: int, shards: int) -> None:
    names = [f"host:{number}:abcd" for number in range(workers)]
    found = Counter(homes(names, shards))
    assert found.total() == shards
    assert max(found.values()) <= -(-5 * shards // (4 * workers))


def test_few_shards_move_when_a_worker_comes() -> None:
    names = [f"host:{number}:abcd" for number in range(12)]
    before, after = homes(names, 64), homes([*names, "new"], 64)
    moved = sum(one != other for one, other in zip(before, after, strict=True))
    assert 0 < moved <= 64 / 4
    assert homes(names[::-1], 64) == before


def test_a_worker_keeps_to_its_shards_and_helps_out_while_it_has_room() -> None:
    one, other = Homes("one", 16), Homes("other", 16)
    assert all(one.has(shard) for shard in range(16))  # who else is there is not known yet
    one.note(["one", "other"])
    other.note(["other"])  # it has not heard of the first one, and still counts itself
    assert all(other.has(shard) for shard in range(16))
    other.note(["one", "other"])
    assert [one.has(shard) for shard in range(16)] == [not other.has(shard) for shard in range(16)]
    own = sum(one.has(shard) for shard in range(16))
    one.help_out(has_room=True)
    assert sum(one.has(shard) for shard in range(16)) == own + 1
    one.help_out(has_room=False)
    assert sum(one.has(shard) for shard in range(16)) == own


def test_the_benchmark_counts_sources_that_moved_though_their_worker_stayed() -> None:
    def asked(*spans: tuple[str, int, int]) -> dict[str, list[float]]:
        return {f"worker-{who}@": [float(at) for at in range(first, last)] for who, first, last in spans}

    agents = {
        "left": asked(("0", 0, 20), ("1", 20, 40)),
        "stayed": asked(("1", 0, 40), ("2", 18, 20)),
        "moved": asked(("1", 0, 21), ("2", 21, 40)),
    }
    site: Any = {"agents": agents}
    assert moved(site, 20.0) == "1 of 2"
    assert kept(site) == (20 + 40 + 21) / (40 + 42 + 40)
