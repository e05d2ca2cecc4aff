"""What workers ask Redis while there is nothing to crawl, by the number of workers.

    python -m benchmarks.idle_workers [--shards N] [--workers N] [--seconds S] [--sources N]

A Redis Cluster of three masters with a replica each; one worker after the other is started, and the CPU time of
the masters is taken for so many seconds each time. The first one leads all shards; what a further one adds grows
with their number: it asks each for its lead, and tells it that it lives. The calls of a crawl come on top.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.ours import Crawl
from benchmarks.redis_servers import Cluster

_SETTLE_S = 15.0  # for a worker to start, lead, and be known to the others
_NODE_TIMEOUT_S = 15.0  # no master is to be replaced because the machine is busy


def _used(cluster: Cluster) -> tuple[float, int]:
    """Return the CPU seconds of the masters, and how many scripts they have run."""
    infos: list[Any] = [master.client.info("everything") for master in cluster.masters()]
    cpu = sum(info["used_cpu_user"] + info["used_cpu_sys"] for info in infos)
    return cpu, sum(info.get("cmdstat_evalsha", {"calls": 0})["calls"] for info in infos)


def main() -> None:
    """Measure and print."""
    name = "python -m benchmarks.idle_workers"
    parser = argparse.ArgumentParser(prog=name, description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--sources", type=int, default=200)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    sizes = {f"source{number}": 1000 for number in range(options.sources)}
    settings = {"MAX_IDLE_TIME_BEFORE_CLOSE": 0, "CRAWL_SHARDS": options.shards}
    with tempfile.TemporaryDirectory(prefix="idle-") as name, ExitStack() as stack:
        cluster = stack.enter_context(closing(Cluster(Path(name), node_timeout=_NODE_TIMEOUT_S)))
        crawl = stack.enter_context(Crawl(Path(name) / "crawl", sizes, settings, redis_url=cluster.url))
        print("workers   masters, % of a core   scripts a second")
        for number in range(1, options.workers + 1):
            worker = crawl.worker(number)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            time.sleep(_SETTLE_S)
            (cpu, scripts), since = _used(cluster), time.monotonic()
            time.sleep(options.seconds)
            later, seconds = _used(cluster), time.monotonic() - since
            core, calls = (later[0] - cpu) / seconds, (later[1] - scripts) / seconds
            print(f"{number:7}{100 * core:23.1f}{calls:19.0f}", flush=True)


if __name__ == "__main__":
    main()
