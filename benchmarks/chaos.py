"""Does every seed end in exactly one way, whatever fails meanwhile?

    python -m benchmarks.chaos [--seeds N] [--random N] [--only FAULT ...] [--shards N] [--keep DIR]

Three workers, a Redis of their own and web sites (arrivals.py), and every few seconds a fault, which lasts while
the next ones come: see `FAULTS`. Seeds are pushed all the while. Afterwards each seed is looked for in the
streams, the dead letters, and the files of two readers, `scrapy events --follow`, that are killed and suspended,
too: one is recreated with its file, the other without, each on a host of another name. Ends with 1 when a
seed was lost or has more than one outcome, an event tells of another picture than its seed's, a thumbnail is
missing, a worker did not stop as it should, or something is left behind in Redis. Takes some six minutes.

With `--shards` the crawl has so many shards, on a Redis Cluster of three masters and three replicas. A master is
killed, restarted or suspended, or gives away the slot of a shard; when it is away for longer than a second its
replica takes over.

A sliding second with too many requests is only told: three workers that start again and again keep two cores so
busy that what left in time may arrive late. benchmarks/politeness.py is the judge of that.

Redis runs with `appendfsync always`: what it has acknowledged is on disk, so that the promise is exact. With
`everysec`, its default, a killed Redis may forget the last second or two (docs/reliability.md).

The same random number gives the same faults in the same order; when they strike depends on the machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path
from random import Random
from typing import Any

import redis
from PIL import Image

from benchmarks.arrivals import Listener, Report, Sites, size_of, time_over
from benchmarks.chaos_redis import Frontier
from benchmarks.ours import ROOT, SCRAPY, Crawl, event_files, events_in, options, size_for, until
from crawlproject.state.calls.readers import LEASE_S
from crawlproject.state.keys import Keys
from demo.redis_servers import Cluster, Server

KEYS = Keys("crawl", "images")
SETTINGS: dict[str, object] = {
    "CRAWL_RETRY_DELAY": 4,  # half of it at least, which outlasts a fault of the store
    "CRAWL_MAX_RETRIES": 4,
    "DOWNLOAD_TIMEOUT": 8,
    "CRAWL_STRAIN": False,  # what is slow here is this machine
    "MAX_IDLE_TIME_BEFORE_CLOSE": 0,
}
# No operator is there to resume anything.
CIRCUIT = {"open": 1, "open_max": 4, "halt_after": 1_000_000, "halt_periods": 1_000_000}
# How a worker may end. The second of two signals may come when it has closed, and heeds none any more.
_STATUSES: Mapping[str, Sequence[int]] = {
    "leaving": (0,),
    "leaving at once": (0, -signal.SIGTERM),
    "killed": (-signal.SIGKILL,),
}
_TICK_S = 0.05
_LOOK_S = 0.5  # between two looks at what has ended
_START_S = 90.0  # for a worker to register; three that start at a time need half a minute beside a busy core
_STOP_S = 90.0  # for a worker to stop when it is told to
_WOKEN_S = 3.0  # for which a reader that was suspended may go on, if it is still the one
_OTHER_HOST = Path(__file__).parent / "other_host"
_STALL_S = 120.0  # without an end of a seed: twice the longest way from a failed attempt to its next one
_FEED = 50  # seeds pushed at a time
_QUIET_S = 3.0  # in which nothing is left to do, beyond the time after which a silent worker lapses
_REDIS_END_S = 20.0  # for a server to end


# With several shards: of more sources, so that most shards have one.
SHARDED_RATES = {
    f"{name}{number}": rate for name, rate in (("a", 35.0), ("b", 20.0), ("c", 8.0)) for number in range(4)
}
SHARDED_RATES |= {"d0": 0.8}

# The seeds: one in fifty each is gone, fails once, is no picture, is moved.

_KINDS = {0: "gone", 1: "once", 2: "page", 3: "moved"}


@dataclass(frozen=True)
class Plan:
    """What is crawled, and how it is disturbed."""

    seeds: int
    random: int
    workers: int = 3
    rates: Mapping[str, float] = field(
        default_factory=lambda: {"a": 60.0, "b": 60.0, "c": 40.0, "d": 20.0, "e": 8.0, "f": 0.8}
    )
    faults: Sequence[str] = ()  # names of FAULTS, dealt out again and again; none: all
    pause: tuple[float, float] = (1.5, 4.5)  # seconds between two faults
    rounds: int | None = None  # how often each fault comes; None: as long as there is work
    heartbeat_timeout: float = 3.0  # seconds
    spider: str = "images"
    ahead: float = 6.0  # seconds of work that wait in Redis
    disturbed: int = 0  # ends, before which faults come, also when all seeds are fed
    shards: int = 1  # of the crawl; several are on a Redis Cluster

    @property
    def deck(self) -> Sequence[str]:
        """The faults that come."""
        return self.faults or [name for name in FAULTS if name != "move-slot" or self.shards > 1]

    def sources(self) -> Iterator[tuple[str, int]]:
        """Yield the sources and the number of their seeds: each has work for the same time."""
        total = sum(self.rates.values())
        for name, rate in self.rates.items():
            yield name, max(round(self.seeds * rate / total), 1)


@dataclass(frozen=True)
class Seed:
    """A seed and what may become of it."""

    source: str
    number: int

    @property
    def identifier(self) -> str:
        """Its identifier."""
        return f"{self.source}-{self.number}"

    @property
    def kind(self) -> str:
        """How the site answers it."""
        return _KINDS.get(self.number % 50, "picture")

    def line(self, authority: str) -> str:
        """Return the line of the seed list."""
        path = {"picture": "", "moved": f"redirect/{authority}/"}.get(self.kind, f"{self.kind}/") + str(
            self.number
        )
        return json.dumps({"url": f"http://{authority}/{path}", "uuid": self.identifier, "source": self.source})


# The disturbance


@dataclass
class Worker:
    """A worker's process, and its state: 'starting', 'up', 'stopped', 'leaving', 'leaving at once', 'killed'."""

    number: int
    process: subprocess.Popen[bytes]
    since: float
    state: str = "starting"


@dataclass
class Reader:
    """A reader of the events: the files that it has written, one after the other, and its process."""

    options: Sequence[str]
    files: list[Path]
    process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None


class Chaos:
    """A crawl under way, its supervisor, and its tormentor; `redis` is the server that its faults strike."""

    def __init__(
        self, plan: Plan, crawl: Crawl, sites: Sites, frontier: Frontier, redis_: Server | Cluster | None
    ) -> None:
        self.plan = plan
        self.crawl = crawl
        self.store = Path(str(crawl.settings.get("CRAWL_PAGES_STORE", crawl.thumbnails)))  # it vanishes at times
        self.sites = sites
        self.rng = Random(plan.random)
        self.frontier = frontier
        self.redis = redis_
        self.workers: list[Worker] = []
        kept = crawl.home / "events.jsonl"  # as in a container that is recreated with its volume
        self.readers = {"kept": Reader((), [kept]), "moving": Reader(("--reader", "moving"), [])}
        self.sleepers: list[
            subprocess.Popen[bytes]
        ] = []  # readers that were suspended: others read in their place
        self.struck: list[tuple[float, str]] = []  # the faults and their ends, with their moments
        self.broken: list[str] = []
        self.redis_up = self.store_up = self.sites_up = True
        self.quiet_s = plan.heartbeat_timeout + _QUIET_S  # without anything to do: then it is over
        self._numbers = count()
        self._later: list[tuple[float, int, str, Callable[[], None]]] = []
        self._present = ""  # the fault that strikes
        self._deck: list[str] = []
        self._dealt = 0

    # What faults use

    def after(self, seconds: float, undo: Callable[[], None]) -> None:
        """Call `undo` after so many seconds."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), self._present, undo))

    def any_worker(self) -> Worker | None:
        """Return a worker that runs, None if there is none."""
        up = [worker for worker in self.workers if worker.state == "up"]
        return self.rng.choice(up) if up else None

    def any_redis(self) -> Server | None:
        """Return a server that may be hurt; None while another one is, or while a worker starts."""
        if self.starting or not self.redis_is_whole:
            return None
        return self.rng.choice(self.redis.masters()) if isinstance(self.redis, Cluster) else self.redis

    @property
    def redis_is_whole(self) -> bool:
        """Whether no fault of Redis lasts; in a cluster each master has its replica."""
        return self.redis_up and (not isinstance(self.redis, Cluster) or self.redis.is_whole())

    @property
    def starting(self) -> bool:
        """Whether a worker starts: it needs Redis and store, and says so when they are not there."""
        return any(worker.state == "starting" for worker in self.workers)

    def start_reader(self, name: str) -> None:
        """Start a reader, on a host of another name."""
        number, reader = next(self._numbers), self.readers[name]
        if name == "moving":
            reader.files.append(self.crawl.home / f"events-{number}.jsonl")
        command = [*SCRAPY, "events", str(reader.files[-1]), "--follow", *reader.options]
        environ = {"PYTHONPATH": str(_OTHER_HOST), "HOST_NAME": f"container-{number}"}
        with (self.crawl.home / f"reader-{name}.log").open("ab") as log:
            reader.process = subprocess.Popen(
                command, cwd=ROOT, env=self.crawl.environment | environ, stdout=log, stderr=log
            )

    @property
    def faults(self) -> Counter[str]:
        """How often each fault has struck."""
        return Counter(name for _, name in self.struck if name in self.plan.deck)

    # The run

    def run(self, lines: Sequence[str]) -> float:
        """Crawl from these lines of the seed list to the end, disturbed; return the seconds it took."""
        began = time.monotonic()
        try:
            for _ in range(self.plan.workers):
                self.start_worker()
            until("all workers are there", _START_S, self._complete)
            self.disturb(lines)
            self.end()
        finally:
            self._mend()
            self._kill_all()
        return time.monotonic() - began

    def disturb(self, lines: Sequence[str]) -> None:
        """Push the lines, and let faults strike, until nothing has been left to do for a while."""
        fed, ended, next_fault, next_look = 0, 0, time.monotonic() + 2, 0.0
        last_end, busy_at = time.monotonic(), time.monotonic()
        ahead, is_idle = self.plan.ahead * sum(self.plan.rates.values()), False
        while not is_idle or time.monotonic() < busy_at + self.quiet_s:
            now = time.monotonic()
            if now > last_end + _STALL_S:
                self.broken.append(f"no seed has ended for {_STALL_S:.0f} s: {self._standstill()}")
                return
            while self._later and self._later[0][0] <= now:
                self._undo()
            if not (self._can_ask() and self.frontier.answers()):
                is_idle = False
            else:
                try:
                    self._look_after()
                    has_room = self.frontier.waiting() + self.frontier.outstanding() < ahead
                    if fed < len(lines) and has_room and self.frontier.push(lines[fed : fed + _FEED]):
                        fed += _FEED
                    if now > next_look:
                        next_look = now + _LOOK_S
                        before, ended = ended, self.frontier.ended()
                        is_idle = fed >= len(lines) and self.frontier.is_idle()
                        if is_idle or ended > before:
                            last_end = now
                except redis.RedisError:  # all can be asked again
                    is_idle = False
            is_wanted = self._wanted(fed < len(lines) or ended < self.plan.disturbed)
            if now > next_fault and is_wanted:
                self._strike()
                next_fault = time.monotonic() + self.rng.uniform(*self.plan.pause)
            if self.is_under_way() or self._later or is_wanted or not is_idle:
                busy_at = now
            time.sleep(_TICK_S)

    def is_under_way(self) -> bool:
        """Tell whether a fault lasts that ends by itself."""
        return not self.redis_up

    def _can_ask(self) -> bool:
        """Tell whether Redis can be asked: in a cluster another master may answer."""
        return self.redis_up or isinstance(self.redis, Cluster)

    def _mend(self) -> None:
        """End all faults now."""
        while self._later:
            self._undo()

    def _undo(self) -> None:
        _, _, name, undo = heapq.heappop(self._later)
        undo()
        self.struck.append((time.monotonic(), f"end of {name}"))

    def _wanted(self, work_left: bool) -> bool:
        """Tell whether another fault shall come; `work_left`: there is enough to disturb."""
        if self.plan.rounds is None:
            return work_left
        return bool(self._deck) or self._dealt < self.plan.rounds * len(self.plan.deck)

    def _strike(self) -> None:
        """Let the next fault strike that can: a shuffled deck, so that all come equally often."""
        if not self._deck:
            self._deck = list(self.plan.deck)
            self._dealt += len(self._deck)
            self.rng.shuffle(self._deck)
        for name in self._deck:
            self._present = name
            if FAULTS[name](self):
                self._deck.remove(name)
                self.struck.append((time.monotonic(), name))
                return

    def _standstill(self) -> str:
        """End all faults; return what is left to do, and who is there to do it."""
        self._mend()
        until("Redis answers", _START_S, self.frontier.answers)
        states = Counter(worker.state for worker in self.workers)
        workers = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return (
            f"{self.frontier.ended()} seeds ended, {self.frontier.waiting()} not read,"
            f" {self.frontier.outstanding()} outstanding; workers: {workers};"
            f" faults to come: {', '.join(self._deck) or 'none'}"
        )

    # The supervisor

    def start_worker(self) -> None:
        """Start one more worker."""
        number = next(self._numbers)
        self.workers.append(Worker(number, self.crawl.worker(number, self.plan.spider), time.monotonic()))

    def _look_after(self) -> None:
        """Note who has come and gone, and start others in their place."""
        registered = self.frontier.registered()
        now = time.monotonic()
        for worker in list(self.workers):
            serves = registered.count(f":{worker.process.pid}:".encode())
            if worker.state == "starting" and serves == self.plan.shards:
                worker.state = "up"
            status = worker.process.poll()
            if status is not None:
                self.workers.remove(worker)
                self._judge_end(worker, status)
            elif worker.state in {"starting", "leaving", "leaving at once"} and now - worker.since > _STOP_S:
                self.broken.append(f"worker {worker.number} is {worker.state} for more than {_STOP_S:.0f} s")
                worker.state = "killed"
                worker.process.kill()
        if self.store_up:
            for _ in range(self.plan.workers - len(self.workers)):
                self.start_worker()
        for name, reader in self.readers.items():
            if not reader.runs:
                self.start_reader(name)

    def _complete(self) -> bool:
        """Tell whether all workers are there."""
        self._look_after()
        return not self.starting

    def _judge_end(self, worker: Worker, status: int) -> None:
        if status not in _STATUSES.get(worker.state, ()):
            log = self.crawl.home / f"worker-{worker.number}.log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "nothing is logged"
            self.broken.append(f"worker {worker.number}, {worker.state}, ended with status {status}: {said}")

    def end(self) -> None:
        """Stop all workers as an operator does."""
        until("all workers are up", _START_S, self._complete)
        for worker in self.workers:
            worker.process.terminate()
            worker.state = "leaving"
        for worker in self.workers:
            try:
                self._judge_end(worker, worker.process.wait(_STOP_S))
            except subprocess.TimeoutExpired:
                self.broken.append(f"worker {worker.number} does not stop")

    def _kill_all(self) -> None:
        processes = [worker.process for worker in self.workers] + [one.process for one in self.readers.values()]
        for process in [*processes, *self.sleepers]:
            if process is not None:
                process.kill()
                process.wait()


# The faults. Each tells whether it could strike now.


def _of_a_worker(strike: Callable[[Chaos, Worker], None]) -> Callable[[Chaos], bool]:
    """Return the fault that strikes a worker that runs."""

    def fault(chaos: Chaos) -> bool:
        if (worker := chaos.any_worker()) is not None:
            strike(chaos, worker)
        return worker is not None

    return fault


@_of_a_worker
def kill(_: Chaos, worker: Worker) -> None:
    """kill -9 of a worker."""
    worker.state = "killed"
    worker.process.kill()


@_of_a_worker
def stop(chaos: Chaos, worker: Worker) -> None:
    """SIGTERM or SIGINT: a worker leaves in order, with status 0."""
    worker.state, worker.since = "leaving", time.monotonic()
    worker.process.send_signal(chaos.rng.choice((signal.SIGTERM, signal.SIGINT)))


@_of_a_worker
def stop_twice(chaos: Chaos, worker: Worker) -> None:
    """Two signals: a worker ends at once."""
    worker.state, worker.since = "leaving at once", time.monotonic()
    worker.process.terminate()
    chaos.after(chaos.rng.uniform(0.05, 0.5), worker.process.terminate)  # nothing, if it has ended by then


@_of_a_worker
def sleep(chaos: Chaos, worker: Worker) -> None:
    """SIGSTOP of a worker for longer than its heartbeat may be late, then SIGCONT."""
    worker.state = "stopped"
    worker.process.send_signal(signal.SIGSTOP)

    def wake() -> None:
        worker.process.send_signal(signal.SIGCONT)
        worker.state = "up"

    chaos.after(chaos.plan.heartbeat_timeout + chaos.rng.uniform(0.5, 4), wake)


def without_redis(chaos: Chaos, how: signal.Signals) -> bool:
    """Redis gets a signal, and comes back with its data.

    After SIGSTOP what was sent and given up meanwhile is done nevertheless.
    """
    server = chaos.any_redis()
    if server is None:
        return False
    server.process.send_signal(how)
    chaos.redis_up = False
    if how != signal.SIGSTOP:
        server.process.wait(_REDIS_END_S)

    def back() -> None:
        if how == signal.SIGSTOP:
            server.process.send_signal(signal.SIGCONT)
        else:
            server.start()
        chaos.redis_up = True

    chaos.after(chaos.rng.choice((0.0, 1.0, 2.0, chaos.plan.heartbeat_timeout + 1, 7.0)), back)
    return True


def move_slot(chaos: Chaos) -> bool:
    """The slot of a shard is moved to another master."""
    if not isinstance(chaos.redis, Cluster) or not chaos.redis_is_whole:
        return False
    chaos.redis.move_slot(chaos.rng.choice(chaos.frontier.keys).seeds)
    return True


def delete_key(chaos: Chaos) -> bool:
    """Somebody deletes a key that is derived from others."""
    if not chaos.redis_is_whole:
        return False
    chaos.frontier.delete_derived(chaos.rng)
    return True


def store_away(chaos: Chaos) -> bool:
    """The folder of the thumbnails, or of the pages, vanishes for a while."""
    folder = chaos.store
    if not chaos.store_up or chaos.starting or not folder.exists():
        return False
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    chaos.store_up = False

    def back() -> None:
        if folder.exists():  # somebody has made it again
            for path in elsewhere.glob("*/*"):
                (folder / path.parent.name).mkdir(exist_ok=True)
                if not (folder / path.parent.name / path.name).exists():
                    path.rename(folder / path.parent.name / path.name)
            shutil.rmtree(elsewhere)
        else:
            elsewhere.rename(folder)
        chaos.store_up = True

    chaos.after(chaos.rng.uniform(0.5, 2), back)
    return True


def sites_out(chaos: Chaos, toggle: Callable[[Sites], None]) -> bool:
    """Sites are silent or away for a while."""
    if not chaos.sites_up:
        return False
    toggle(chaos.sites)
    chaos.sites_up = False

    def back() -> None:
        toggle(chaos.sites)
        chaos.sites_up = True

    chaos.after(chaos.rng.uniform(0.5, 3), back)
    return True


def end_reader(chaos: Chaos, how: signal.Signals) -> bool:
    """A reader gets a signal that ends it, and is recreated on a host of another name."""
    running = [reader.process for reader in chaos.readers.values() if reader.process is not None and reader.runs]
    if running:
        chaos.rng.choice(running).send_signal(how)
    return bool(running)


def sleep_reader(chaos: Chaos) -> bool:
    """SIGSTOP of a reader for longer than its lease, then SIGCONT; meanwhile another reads under its name.

    Into another file, that is: the one that it writes is locked.
    """
    process = chaos.readers["moving"].process
    if process is None or not chaos.readers["moving"].runs or not chaos.redis_is_whole:
        return False
    process.send_signal(signal.SIGSTOP)
    chaos.sleepers.append(process)
    chaos.start_reader("moving")

    def wake() -> None:
        process.send_signal(signal.SIGCONT)
        chaos.after(_WOKEN_S, process.kill)  # nothing, if it has noticed by then that another reads

    chaos.after(LEASE_S + chaos.rng.uniform(0.5, 4), wake)
    return True


FAULTS: Mapping[str, Callable[[Chaos], bool]] = {
    "kill": kill,
    "stop": stop,
    "stop-twice": stop_twice,
    "sleep": sleep,
    "restart-redis": partial(without_redis, how=signal.SIGTERM),
    "kill-redis": partial(without_redis, how=signal.SIGKILL),
    "hang-redis": partial(without_redis, how=signal.SIGSTOP),
    "move-slot": move_slot,
    "delete-key": delete_key,
    "store-away": store_away,
    "sites-silent": partial(sites_out, toggle=Sites.toggle_silent),  # what waits is answered then
    "sites-away": partial(sites_out, toggle=Sites.toggle_away),  # every connection breaks
    "kill-reader": partial(end_reader, how=signal.SIGKILL),
    "stop-reader": partial(end_reader, how=signal.SIGTERM),
    "sleep-reader": sleep_reader,
}


# The account


@dataclass
class Account:
    """What came of a run."""

    seeds: int  # or pages that had to end
    seconds: float
    faults: Mapping[str, int]
    outcomes: Mapping[str, int]  # image events, link rot, and dead letters by reason
    lost: list[str]
    doubled: list[str]
    broken: list[str]  # all else that is not as promised
    too_fast: list[str]  # sources that saw more than their rate allows
    totals: Mapping[str, Any]  # scrapy stats

    def text(self, random: int) -> str:
        """Return it for people."""
        faults = ", ".join(f"{name} {number}" for name, number in sorted(self.faults.items()))
        lines = [
            f"random {random}: {self.seeds} had to end, in {self.seconds:.0f} s",
            f"{sum(self.faults.values())} faults: {faults}",
            *(f"{number:8} {what}" for what, number in self.outcomes.items()),
            f"deliveries lost with workers: {self.totals.get('deliveries_lost', 0)}",
            *(f"BROKEN: {what}" for what in self.broken),
            *(f"TOO FAST: {what}" for what in self.too_fast),
            *(f"LOST: {identifier}" for identifier in self.lost[:20]),
            *(f"DOUBLED: {identifier}" for identifier in self.doubled[:20]),
            f"lost {len(self.lost)}, doubled {len(self.doubled)}, otherwise broken {len(self.broken)}",
        ]
        return "\n".join(lines)


def account(chaos: Chaos, seeds: Sequence[Seed], seconds: float, *, with_files: bool = True) -> Account:
    """Look for the end of every seed, in the files of the readers, too."""
    expected = {seed.identifier: seed for seed in seeds}
    events = chaos.frontier.events()
    images, rot = events[KEYS.image_events], events[KEYS.link_rot_events]
    wrong = chain(
        _wrong_images(chaos.crawl, images, expected),
        (f"link rot of {one['identifier']}" for one in rot if expected[one["identifier"]].kind != "gone"),
        wrong_files(chaos, events) if with_files else (),
    )
    return accounted(chaos, seconds, {"image events": images, "link rot": rot}, "identifier", expected, wrong)


def accounted(
    chaos: Chaos,
    seconds: float,
    ended: Mapping[str, Sequence[Mapping[str, Any]]],
    name: str,
    expected: Collection[str],
    wrong: Iterable[str],
) -> Account:
    """Return the account of a crawl.

    `ended` are its events by kind, whose key `name` says what has ended; `expected` are those that had to, once,
    as an event or as a dead letter. `wrong` says what else is not as promised.
    """
    dead = chaos.crawl.dead_letters(chaos.plan.spider)
    ends = Counter(end[name] or end["seed"] for end in chain(*ended.values(), dead))
    reasons = Counter("dead: " + re.split(r"[:,(]", letter["reason"])[0].strip() for letter in dead)
    return Account(
        len(expected),
        seconds,
        chaos.faults,
        {kind: len(events) for kind, events in ended.items()} | dict(reasons.most_common()),
        sorted(one for one in expected if one not in ends),
        sorted(one for one, number in ends.items() if number > 1),
        chaos.broken
        + [f"{one} was never to be asked for" for one in ends if one not in expected]
        + [*wrong, *chaos.frontier.left_behind()],
        [],
        chaos.crawl.totals(chaos.plan.spider),
    )


def _wrong_images(crawl: Crawl, images: Sequence[dict[str, Any]], seeds: Mapping[str, Seed]) -> Iterator[str]:
    for event in images:
        seed = seeds.get(event["identifier"])
        if seed is None:
            continue
        if seed.kind in {"gone", "page"} or (event["width"], event["height"]) != size_of(seed.number):
            yield f"an image event of {seed.identifier}, {seed.kind}: {event}"
        try:
            with Image.open(crawl.thumbnails / event["thumbnail"]) as thumbnail:
                size = thumbnail.size
        except OSError as error:
            yield f"thumbnail of {seed.identifier}: {error}"
        else:
            if size != size_of(seed.number):
                yield f"thumbnail of {seed.identifier} shows another picture"


def wrong_files(chaos: Chaos, events: Mapping[str, Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Yield a sentence for each reader whose files, together, have other events than the streams."""
    emitted = Counter(
        (stream.rpartition(":")[2], _name_of(event)) for stream in events for event in events[stream]
    )
    for name, reader in chaos.readers.items():
        written: Counter[tuple[str, str | None]] = Counter()
        for path in filter(event_files, reader.files):  # what a process wrote before it died is settled then
            chaos.crawl.scrapy("events", str(path), *reader.options)
        for path in reader.files:
            written.update((event["event"], _name_of(event)) for event in events_in(path))
        if written != emitted:
            less, more = (emitted - written).total(), (written - emitted).total()
            yield f"the files of reader {name} lack {less} events of the streams and have {more} more"


def _name_of(event: Mapping[str, Any]) -> str | None:
    return event.get("identifier") or event.get("url")


def too_fast(chaos: Chaos, report: Report) -> Iterator[str]:
    """Yield the sources that saw too many requests in a second, but where the sites were late themselves."""
    for source, times in report["arrivals"].items():
        worst, over = time_over(times, chaos.plan.rates[source], report["lapses"])
        if over:
            yield f"{source} saw {worst:.0%} of the requests that are allowed in a second; {over:.1f} s were over"


def run(plan: Plan, keep: Path | None = None) -> Account:
    """Run a plan from nothing to nothing; logs are left in `keep`, if it is given."""
    seeds = seeds_of(plan)
    result, _ = from_nothing(
        plan,
        [Listener("127.0.0.1", source) for source in plan.rates],
        partial(crawl_of, plan),
        lambda chaos: lines_of(plan, seeds, chaos.sites),
        lambda chaos, seconds: account(chaos, seeds, seconds),
        keep,
    )
    return result


def from_nothing(
    plan: Plan,
    listeners: Sequence[Listener],
    crawl_in: Callable[[Path, str], Crawl],
    lines: Callable[[Chaos], Sequence[str]],
    judge: Callable[[Chaos, float], Account],
    keep: Path | None,
) -> tuple[Account, Report]:
    """Start servers, sites and crawl (`crawl_in` a folder, with the Redis of a URL), and disturb it to its end.

    `lines` are those of the seed list. Returns what `judge` says, and what the sites have seen.
    """
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, ExitStack() as started:
        folder = Path(name)
        server = Cluster(folder) if plan.shards > 1 else Server(folder, appendfsync="always")
        started.enter_context(closing(server))
        sites = started.enter_context(Sites(listeners))
        crawl = started.enter_context(crawl_in(folder, server.url))
        frontier = started.enter_context(Frontier(server.url, plan.spider, plan.shards))
        chaos = Chaos(plan, crawl, sites, frontier, server)
        try:
            result = judge(chaos, chaos.run(lines(chaos)))
        finally:
            if keep is not None:
                crawl.keep_in(keep)
    result.too_fast += too_fast(chaos, sites.report)
    return result, sites.report


def crawl_of(plan: Plan, folder: Path, url: str, **more: object) -> Crawl:
    """Return the crawl of a plan, in a folder below this one, with the Redis of that URL."""
    settings = SETTINGS | {
        "CRAWL_HEARTBEAT_TIMEOUT": plan.heartbeat_timeout,
        # So that most seeds wait beyond their source's share, and many in the list for a place there.
        "CRAWL_FRONTIER_HIGH_WATER": max(plan.seeds // 5, 100),
        "CRAWL_OVERFLOW_MAXLEN": max(plan.seeds // 3, 100),
    }
    if plan.shards > 1:
        of_each = ",".join(map(str, range(plan.shards)))  # so that all are served, whichever worker is killed
        settings |= {"CRAWL_SHARDS": plan.shards, "CRAWL_SHARD": of_each}
    sizes = {source: size_for(rate) for source, rate in plan.rates.items()}
    rules = {"hosts": ["127.0.0.1"], "circuit": CIRCUIT}
    return Crawl(folder / "crawl", sizes, settings | more, redis_url=url, more=lambda _: rules)


def seeds_of(plan: Plan) -> list[Seed]:
    """Return the seeds of a plan, well mixed."""
    seeds = [Seed(source, number) for source, total in plan.sources() for number in range(total)]
    Random(0).shuffle(seeds)
    return seeds


def lines_of(plan: Plan, seeds: Sequence[Seed], sites: Sites) -> list[str]:
    """Return the lines of the seed list."""
    ports = dict(zip(plan.rates, sites.ports, strict=True))
    return [seed.line(f"127.0.0.1:{ports[seed.source]}") for seed in seeds]


def parser_of(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that crawls of images and of pages share."""
    parser = options(program, description, FAULTS, "FAULT")
    parser.add_argument(
        "--random", type=int, default=int.from_bytes(os.urandom(3)), help="that a former run has printed"
    )
    return parser


def main() -> int:
    """Run it and print what came of it."""
    parser = parser_of("chaos", __doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="of the crawl, on a Redis Cluster")
    chosen = parser.parse_args()
    if chosen.shards == 1 and "move-slot" in (chosen.only or ()):
        parser.error("move-slot is a fault of several shards: add --shards 16")
    print(f"random {chosen.random}", flush=True)
    plan = Plan(
        chosen.seeds,
        chosen.random,
        faults=chosen.only or (),
        **({"shards": chosen.shards, "rates": SHARDED_RATES} if chosen.shards > 1 else {}),
    )
    result = run(plan, chosen.keep)
    print(result.text(chosen.random))
    return 1 if result.lost or result.doubled or result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
