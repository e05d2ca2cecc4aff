"""Whole crawls whose decoders hang, or cannot be started: no picture is lost, and shutdown works."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.hostile.server import Server, plain
from demo.gallery import Gallery
from tests.imaging.test_decoders import children, is_decoder, trap
from tests.pipelines.test_outages import deliveries, logged
from tests.test_crawl import KEYS, Crawl
from tests.traps.sitecustomize import SLEEP
from tests.waiting import PATIENCE_S

TRAPS = Path(__file__).parents[1] / "traps"


def seed(crawl: Crawl, server: Server, source: str, *names: str) -> None:
    for name in names:
        seed = {"url": f"{server.url}/{name}", "uuid": name, "source": source}
        crawl.redis.lpush(KEYS.seeds, json.dumps(seed))


@pytest.mark.judges
def test_shutdown_does_not_wait_for_pictures_that_hang_in_their_decoders(crawl: Crawl) -> None:
    names = [f"{n}" for n in range(20)]
    with Server({name: plain(trap(SLEEP)) for name in names}) as server:
        crawl.source("museum", 100)
        seed(crawl, server, "museum", *names)
        crawl.start(PYTHONPATH=str(TRAPS), CRAWL_DECODE_TIMEOUT=str(2 * PATIENCE_S), CRAWL_SHUTDOWN_GRACE="1")
        worker = crawl.workers[0]
        crawl.until(lambda: len(children(worker.pid)) == 2)
        crawl.until(lambda: sum(crawl.redis.hlen(key) for key in crawl.redis.keys(KEYS.leases_of + "*")) == 20)
        time.sleep(1)
        decoders = children(worker.pid)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    crawl.until(lambda: not any(map(is_decoder, decoders)))
    assert crawl.dead() == {}
    assert crawl.redis.hget(KEYS.counters, "outstanding") == b"20"
    assert not crawl.redis.keys(KEYS.leases_of + "*")
    assert deliveries(crawl) == 0
    assert crawl.redis.keys(KEYS.statuses_of + "*") == []
    assert "Traceback" not in crawl.log()


def test_a_decoder_that_cannot_be_started_costs_nothing_but_time(crawl: Crawl) -> None:
    crawl.source("photos", 100, pictures=30)
    broken = crawl.folder / "broken"
    broken.mkdir()
    # What a virtualenv does that is replaced under a worker: no process starts any more, until it is whole.
    (broken / "sitecustomize.py").write_text(
        "import os, pathlib, sys\n"
        "whole = pathlib.Path(__file__).parent / 'whole'\n"
        "if any('imaging.analyse' in each for each in sys.orig_argv) and not whole.exists():\n"
        "    os._exit(3)\n"
    )
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("photos", *(f"{n}.jpg" for n in range(30)))
        crawl.start(PYTHONPATH=str(broken))
        crawl.until(lambda: all(logged(crawl, "Leasing paused: pictures cannot be decoded (a decoder process")))
        crawl.until(lambda: not any(crawl.redis.hlen(key) for key in crawl.redis.keys(KEYS.leases_of + "*")))
        time.sleep(2)  # probes
        assert crawl.redis.hget(KEYS.counters, "outstanding") == b"30"
        assert deliveries(crawl) == 0
        (broken / "whole").touch()
        crawl.finish()
    assert crawl.outcomes() == Counter(f"photos-{n}.jpg" for n in range(30))
    assert not crawl.dead()
    assert logged(crawl, "Leasing paused: pictures") == [1]
    assert logged(crawl, "Traceback") == [0]
    assert "'decoders/down': 1" in crawl.log()
