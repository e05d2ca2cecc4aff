"""The fail-over benchmark in small (benchmarks/failover.py): a master is killed, and a replica takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import failover
from benchmarks.failover import TRIALS, Cluster, run
from benchmarks.redis_servers import Server

pytestmark = pytest.mark.slow


@pytest.mark.judges
@pytest.mark.timeout(400)  # half a minute, but for a busy machine
def test_a_crawl_goes_on_with_the_replica_that_takes_over() -> None:
    trial = next(trial for trial in TRIALS if trial.name == "failover")
    result = run(trial, seconds=6, sources={"fast": 50.0, "modest": 5.0})
    assert result.broken == []  # a rate exceeded, a worker gone, an event twice, a lost seed that stays lost


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
