from __future__ import annotations

import subprocess
import sys

COUNT_FULL_COLLECTIONS = """
import gc, sys
from crawlproject.frontier import worker

if sys.argv[1] == "worker":
    worker.collect_rarely()
full = []
gc.callbacks.append(lambda phase, info: full.append(1) if (phase, info["generation"]) == ("start", 2) else 0)
requests = []
for number in range(1_000_000):
    requests.append([number])  # as a frontier that fills up
print(len(full))
"""


def full_collections(of: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FULL_COLLECTIONS, of], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_a_worker_seldom_stops_to_look_through_all_of_its_objects() -> None:
    assert full_collections("worker") < full_collections("anything else") / 2
