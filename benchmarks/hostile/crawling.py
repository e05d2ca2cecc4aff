"""One worker over hostile seeds, with a Redis of its own: how each of them ended, and how the worker bore it."""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.hostile import standstill
from benchmarks.hostile.room import Tally
from benchmarks.hostile.standstill import STOOD_NEVER, Standstill
from benchmarks.measure import FAST
from benchmarks.ours import MIB, Crawl, resident
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "images")
SOURCE = "museum"
IMAGE, LINK_ROT = "image", "link rot"  # how a seed can end; else by the reason of its dead letter
MOST_CPU_S = 1.0  # that the reactor may be busy with one thing; a pulse lapses after five
MOST_MEMORY = 1024 * MIB
_PATIENCE_S = 300.0


@dataclass
class Ran:
    """How the seeds ended, by identifier, and how the worker did: memory in bytes, with its decoders."""

    ends: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    images: dict[str, Any] = field(default_factory=dict)
    standstill: Standstill = STOOD_NEVER
    memory: int = 0
    log: str = ""
    status: int | None = None  # None: it had not ended after minutes

    def fault(self, identifier: str, wanted: str | None) -> str:
        """Return what is wrong with how a seed ended.

        `wanted` is how it must: `IMAGE`, `LINK_ROT`, or words of the reason; None: in any one way.
        """
        ends = self.ends[identifier]
        if len(ends) != 1:
            return f"ended {len(ends)} times: {ends}"
        return "" if wanted is None or wanted in ends[0] else f"ended as {ends[0]!r}, not {wanted!r}"

    def judge(self, tally: Tally) -> None:
        """Judge how the worker did, as one more case, and note how long its reactor stood still."""
        faults = [f"exit code {self.status}"] if self.status != 0 else []
        if "Traceback" in self.log:
            faults.append("a traceback in its log: " + self.log.partition("Traceback")[2][-400:])
        if lines := [line for line in self.log.split("\n") if not line.replace("\t", " ").isprintable()]:
            faults.append(f"its log has {lines[0]!r}")
        if self.standstill.cpu > MOST_CPU_S:
            faults.append(f"its reactor was busy with one thing for {self.standstill.cpu:.2f} s")
        if self.memory > MOST_MEMORY:
            faults.append(f"it had {self.memory // MIB} MiB")
        tally.judge("the worker", "; ".join(faults))
        wall, cpu = (round(1000 * seconds) for seconds in self.standstill)
        tally.notes.append(
            f"reactor's longest standstill {wall} ms ({cpu} ms of CPU), at most {self.memory // MIB} MiB"
        )


def crawl(folder: Path, seeds: list[dict[str, Any]], others: Iterable[str] = (), **settings: object) -> Ran:
    """Crawl the seeds, of `SOURCE` unless they name one of the others."""
    ran = Ran()
    watched = folder / "standstill.json"
    at_once = {
        "CRAWL_MAX_RETRIES": 0,
        "CRAWL_CIRCUIT_ERRORS": 1,  # the sites here do little but fail
    }
    with Crawl(folder / "crawl", dict.fromkeys((SOURCE, *others), FAST), at_once | settings) as one:
        one.redis.lpush(KEYS.seeds, *(json.dumps({"source": SOURCE} | seed) for seed in seeds))
        options = (*standstill.OPTIONS, "-s", f"{standstill.FILE}={watched}", "-L", "DEBUG")
        worker = subprocess.Popen([*one.worker_command(0), *options], env=one.environment)
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while worker.poll() is None and time.monotonic() < deadline:
                ran.memory = max(ran.memory, resident(worker.pid))
                time.sleep(0.05)
            ran.status = worker.returncode
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        log = one.home / "worker-0.log"
        ran.log = log.read_text(errors="replace") if log.exists() else ""
        _collect(one, ran)
    if watched.exists():
        ran.standstill = Standstill.read(watched)
    return ran


def _collect(one: Crawl, ran: Ran) -> None:
    events: Mapping[str, str] = {KEYS.image_events: IMAGE, KEYS.link_rot_events: LINK_ROT}
    redis: Any = one.redis
    for stream, end in events.items():
        for _, fields in redis.xrange(stream):
            event = json.loads(fields[b"event"])
            ran.ends[event["identifier"]].append(end)
            ran.images[event["identifier"]] = event
    for letter in one.dead_letters():
        identifier = letter["identifier"] or json.loads(letter["seed"])["uuid"]  # what could not be read has none
        ran.ends[identifier].append(letter["reason"])
