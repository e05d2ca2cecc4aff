"""A picture that kills whoever looks at it, among others that do not."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.arrivals import Listener, Sites
from benchmarks.ours import ROOT, Crawl
from crawlproject.state.keys import Keys

pytestmark = pytest.mark.slow

KEYS = Keys("crawl", "images")
PIPELINES = {
    "deadly.DeadlyPipeline": 50,
    "crawlproject.pipelines.thumbnail.ThumbnailPipeline": 100,
}
DEADLINE = 240.0  # seconds
SETTINGS = {"CRAWL_HEARTBEAT_TIMEOUT": 1, "MAX_IDLE_TIME_BEFORE_CLOSE": 0.5}


def test_a_picture_that_kills_its_workers_becomes_a_dead_letter_and_no_other_picture_is_lost(
    tmp_path: Path,
) -> None:
    with (
        Sites([Listener("127.0.0.1", "museum")]) as sites,
        Crawl(tmp_path / "crawl", {"museum": 100_000_000}, SETTINGS) as crawl,
    ):
        names = [f"museum-{number}" for number in range(60)]
        names[20] = "museum-deadly"
        for number, name in enumerate(names):
            url = f"http://127.0.0.1:{sites.ports[0]}/{number}"
            crawl.redis.lpush(KEYS.seeds, json.dumps({"url": url, "uuid": name, "source": "museum"}))

        statuses = supervise(crawl)

        redis: Any = crawl.redis
        images = [json.loads(fields[b"event"]) for _, fields in redis.xrange(KEYS.image_events)]
        dead = crawl.dead_letters()
    assert 1 <= statuses.count(-signal.SIGKILL) <= 5  # a worker that stood still counts as lost, too
    assert set(statuses) == {0, -signal.SIGKILL}
    assert [(letter["identifier"], letter["reason"]) for letter in dead] == [
        ("museum-deadly", "lost with its worker, delivery 5")
    ]
    assert sorted(event["identifier"] for event in images) == sorted(
        name for name in names if "deadly" not in name
    )


def supervise(crawl: Crawl) -> list[int]:
    """Keep two workers running until the crawl is done; return how all of them ended."""
    command = ["-s", f"ITEM_PIPELINES={json.dumps(PIPELINES)}"]
    environ = crawl.environment | {"PYTHONPATH": str(Path(__file__).parent)}
    running: list[subprocess.Popen[bytes]] = []
    statuses: list[int] = []
    started = 0
    deadline = time.monotonic() + DEADLINE
    try:
        while 0 not in statuses:
            while len(running) < 2:
                running.append(subprocess.Popen(crawl.worker_command(started) + command, cwd=ROOT, env=environ))
                started += 1
            time.sleep(0.05)
            assert time.monotonic() < deadline, f"not done: see the workers' logs in {crawl.home}"
            statuses += [worker.returncode for worker in running if worker.poll() is not None]
            running = [worker for worker in running if worker.returncode is None]
        return statuses + [worker.wait(60) for worker in running]
    finally:
        for worker in running:
            worker.kill()
            worker.wait()
