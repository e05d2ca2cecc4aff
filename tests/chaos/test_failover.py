"""The fail-over benchmark in small (benchmarks/failover.py): a master is killed, and a replica takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import failover, failover_shards
from benchmarks.failover import TRIALS, Cluster, run
from benchmarks.failover_shards import silence_of_others, time_away
from benchmarks.redis_servers import Server

pytestmark = pytest.mark.slow


@pytest.mark.judges
@pytest.mark.timeout(400)  # half a minute, but for a busy machine
def test_a_crawl_goes_on_with_the_replica_that_takes_over() -> None:
    trial = next(trial for trial in TRIALS if trial.name == "failover")
    result = run(trial, seconds=6, sources={"fast": 50.0, "modest": 5.0})
    assert result.broken == []  # a rate exceeded, a worker gone, an event twice, a lost seed that stays lost


@pytest.mark.judges
@pytest.mark.timeout(400)
def test_what_a_replica_has_not_got_is_neither_lost_nor_read_twice() -> None:
    trial = next(trial for trial in TRIALS if trial.name == "cluster-lag")
    rates = {name: rate / 2 for name, rate in failover_shards.sources().items()}
    result = run(trial, seconds=16, sources=rates)
    assert (
        result.broken == []
    )  # besides: a shard of another master silent, or one of this master away for too long
    assert result.lacking > 0


def test_a_shard_is_judged_by_its_requests() -> None:
    arrivals = {0: [1.0, 2.0, 9.5], 1: [1.0, 2.5, 9.9], 2: [1.0, 1.5, 4.0, 4.5], 3: [0.0, 1.9, 2.4, 4.3]}
    hurt = frozenset({0, 1})
    assert silence_of_others(arrivals, hurt, since=2.0) == pytest.approx((1.9, 2.5))
    assert silence_of_others(arrivals, hurt, since=4.1) == pytest.approx((2.5, 1.9))
    assert time_away(arrivals, hurt, since=2.0) == pytest.approx(7.9)
    assert time_away(arrivals | {1: [1.0, 2.5]}, hurt, since=2.0) == float("inf")


def test_no_server_is_left_running_when_they_do_not_find_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Server] = []

    class Noted(Server):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            started.append(self)

    def give_up(what: str, *_: object) -> None:
        raise TimeoutError(what)

    monkeypatch.setattr(failover, "Server", Noted)
    monkeypatch.setattr(failover, "until", give_up)
    with pytest.raises(TimeoutError, match="the sentinels know all servers"):
        Cluster(tmp_path, min_replicas=False, parted=False)
    assert len(started) == 6
    assert [one.process.poll() is None for one in started] == [False] * 6
