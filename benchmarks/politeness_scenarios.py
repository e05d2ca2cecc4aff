"""The scenarios of the politeness harness (politeness.py): sources, what happens to their crawl, and when."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.arrivals import Listener
from benchmarks.ours import Crawl, until
from benchmarks.set_clock import Clocks
from crawlproject.politeness.slots import DOUBT_S
from crawlproject.sources.rates import MAXIMUM_RATE, MINIMUM_RATE
from crawlproject.state import embedded
from crawlproject.state.calls import LEADER_TTL_S
from crawlproject.state.keys import Keys
from crawlproject.state.source_counts import counts_in

KEYS = Keys("crawl", "images")
SECOND = Keys("crawl", "second")  # second_spider
WANTED_USE = 0.97
WANTED_BESIDE_HANGING = 0.95
IN_FLIGHT_S = 1.0  # for requests whose slots were given out to arrive
_TAKEOVER_S = 20.0  # for another worker to lead


@dataclass(frozen=True)
class Outage:
    """A time that counts in no mean; within `patience` seconds of its end every source gets requests."""

    begin: float
    end: float
    patience: float
    source: str | None = None  # None: all


@dataclass(frozen=True)
class Source:
    """A source; each host is a domain, and with `group` many sources of one host share port and row."""

    name: str
    rate: float
    host: str = "127.0.0.1"
    group: str | None = None
    requests: int | None = None  # None: as many as last for the scenario's length
    redirects: tuple[str, ...] = ()  # the sources that its pictures lead to, one by the other
    handshake: float | None = None  # its TLS handshakes take so many seconds; None: no TLS
    delay: float = 0.0  # seconds until its site answers
    hangs: str = ""  # what does: "robots", "connect", "name", "answer"; nobody waits for its seeds then
    # "": its robots.txt is requested; else it leads there (`source/path`); None: ignored
    robots: str | None = None
    row: str = ""  # of the table, if several sources share one
    visited: bool = False  # also by requests for others' robots.txt, which may take OTHERS_SHARE of its rate
    may_wait: bool = False  # for a robots.txt elsewhere: how much of its rate is used is not judged
    halted: bool = False  # from the beginning; its seeds come first, and stay until it is resumed

    @property
    def listener(self) -> Listener:
        """Where its site listens."""
        if self.hangs == "name":
            return Listener("127.0.0.1", None)  # nobody gets there
        if self.group is not None and not self.hangs:
            return Listener(self.host, None)
        return Listener(self.host, self.name, self.robots or None, self.handshake, self.hangs, self.delay)


class Run:
    """A crawl under way, for those who disturb it; they name outages and what is to be judged differently."""

    def __init__(
        self, crawl: Crawl, workers: list[subprocess.Popen[bytes]], seconds: float, clocks: Clocks | None = None
    ) -> None:
        self.crawl = crawl
        self.redis: Any = crawl.redis
        self.workers = workers
        self.seconds = seconds
        self._clocks = clocks
        self.outages: list[Outage] = []
        self.silences: list[tuple[float, float]] = []  # in which no request may arrive
        self.resumed_at = math.inf  # when those halted from the beginning were resumed
        self.new_rates: dict[str, tuple[float, float]] = {}  # source: from when on, rate
        self.unequal: list[str] = []  # sources that two spiders have not shared alike

    def rates_of(self, source: Source) -> list[tuple[str, float, float, float]]:
        """Return the rates of `source` with the name of their row, and from when to when they hold."""
        name = source.row or source.group or source.name
        if source.name not in self.new_rates:
            return [(name, source.rate, -math.inf, math.inf)]
        at, rate = self.new_rates[source.name]
        return [(name, source.rate, -math.inf, at), (f"{name}, then", rate, at, math.inf)]

    def leader(self) -> bytes | None:
        """Return the worker that leads."""
        found: bytes | None = self.redis.get(KEYS.leader)
        return found

    def process_of(self, worker: bytes) -> subprocess.Popen[bytes]:
        """Return the process of `worker`, whose name has the process id in it."""
        return next(process for process in self.workers if f":{process.pid}:".encode() in worker)

    def leading(self) -> tuple[bytes, subprocess.Popen[bytes]]:
        """Return the worker that leads, and its process."""
        until("a worker leads", _TAKEOVER_S, self.leader)
        leader = self.leader()
        assert leader is not None
        return leader, self.process_of(leader)

    @property
    def clocks(self) -> Clocks:
        """The clocks of Redis (`redis`) and of each worker (`worker-0`, ...)."""
        assert self._clocks is not None
        return self._clocks

    def wait_for_takeover(self, former: bytes) -> float:
        """Wait until another than `former` leads; return when that was seen."""
        until("another worker leads", _TAKEOVER_S, lambda: self.leader() not in {None, former})
        return time.monotonic()


Disturbance = Callable[[Run], None]


@dataclass(frozen=True)
class Scenario:
    """A crawl of `seconds`, and what happens to it."""

    name: str
    sources: Sequence[Source]
    workers: int = 2
    seconds: float = 24.0
    disturb: Disturbance | None = None
    skew_hours: tuple[float, ...] = ()  # of each worker's clock
    sets_clocks: bool = False  # while it runs
    settings: Mapping[str, object] = field(default_factory=dict)
    second: int = 0  # of the workers, that crawl for a second spider, which gets every other seed
    losses: bool = False  # requests may have been sent by processes that could not count them any more

    @property
    def wanted_use(self) -> float:
        """The least share of its rate that a source that does not hang shall get."""
        return WANTED_BESIDE_HANGING if any(source.hangs for source in self.sources) else WANTED_USE


def killed_leader(run: Run) -> None:
    """Kill the leader; the others go on until the pulse runs out, then wait for another leader."""
    time.sleep(run.seconds * 0.3)
    leader, process = run.leading()
    process.kill()
    at = time.monotonic()
    until("the pulse runs out", LEADER_TTL_S + _TAKEOVER_S, lambda: run.redis.get(KEYS.pulse) != leader)
    lost = time.monotonic()
    taken = run.wait_for_takeover(leader)
    run.silences.append((min(lost, at + LEADER_TTL_S) + IN_FLIGHT_S, taken))
    run.outages.append(Outage(at, taken, patience=2))


def no_leader(run: Run) -> None:
    """Kill the leader and keep the lead from all others for a while, as a leader that hangs would."""
    time.sleep(run.seconds * 0.3)
    _, process = run.leading()
    process.kill()
    at = time.monotonic()
    while time.monotonic() < at + LEADER_TTL_S + IN_FLIGHT_S + 3:
        run.redis.set(KEYS.leader, "nobody", ex=int(LEADER_TTL_S))
        time.sleep(0.5)
    free = time.monotonic()
    run.redis.delete(KEYS.leader)
    taken = run.wait_for_takeover(b"nobody")
    run.silences.append((at + LEADER_TTL_S + IN_FLIGHT_S, free))
    run.outages.append(Outage(at, taken, patience=2))


def stopped_worker(run: Run, begin: float = 0.3, pause: float = 10.0) -> None:
    """Stop a worker that does not lead, by default so long that it loses its leases, and let it go on.

    `begin` is the share of the crawl before it.
    """
    time.sleep(run.seconds * begin)
    _, leading = run.leading()
    victim = next(process for process in run.workers if process is not leading)
    victim.send_signal(signal.SIGSTOP)
    time.sleep(pause)
    victim.send_signal(signal.SIGCONT)


def stopped_leader(run: Run, pause: float = 10.0) -> None:
    """Stop the worker that leads, until another one does and longer, and let it go on."""
    time.sleep(run.seconds * 0.3)
    leader, process = run.leading()
    process.send_signal(signal.SIGSTOP)
    at = time.monotonic()
    taken = run.wait_for_takeover(leader)
    run.outages.append(Outage(at, taken, patience=2))
    time.sleep(max(at + pause - time.monotonic(), 0))
    process.send_signal(signal.SIGCONT)


def restarted_redis(run: Run, away: float = 2.0) -> None:
    """Shut Redis down, and start it again on its data; without a time `away` it is killed.

    The slots that it gave out must still count.
    """
    time.sleep(run.seconds * 0.3)
    at = time.monotonic()
    if away:
        embedded.stop(run.crawl.home / "redis")
        time.sleep(away)
    else:
        os.kill(run.redis.info("server")["process_id"], signal.SIGKILL)
    embedded.ensure(run.crawl.home / "redis")
    run.outages.append(Outage(at, time.monotonic() + DOUBT_S, patience=4))


STEPS = (0.1, 0.5, 1.0, 2.0, 2.5, 5.0, 60.0, 3600.0)
SUSPENDS = (0.5, 1.0, 2.5, 5.5, 12.0, 30.0)
_REST_S = 6.0  # between two jumps of a clock


def set_clock(run: Run, steps: Sequence[float] = STEPS, apart: Sequence[float] = ()) -> None:
    """Set Redis' clock forward by each of `steps` (s), and back; with `apart`, each only for so long."""
    for number, step in enumerate(sign * step for step in steps for sign in (1, -1)):
        time.sleep(_REST_S)
        run.clocks.move("redis", wall=step)
        if apart:
            time.sleep(apart[number % len(apart)])
            run.clocks.move("redis", wall=-step)


def suspend_worker(run: Run, suspends: Sequence[float] = SUSPENDS) -> None:
    """Suspend the machine of a worker for each of `suspends` (s): its monotonic clock stands still, too."""
    for seconds in suspends:
        time.sleep(_REST_S)
        _, leading = run.leading()
        number = next(number for number, process in enumerate(run.workers) if process is not leading)
        run.workers[number].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        run.clocks.move(f"worker-{number}", monotonic=-seconds)
        run.workers[number].send_signal(signal.SIGCONT)


def suspend_redis(run: Run, suspends: Sequence[float] = SUSPENDS, *, clock_stops: bool) -> None:
    """Suspend Redis for each of `suspends` (s); `clock_stops`: its clock, too, as in a paused virtual machine."""
    for seconds in suspends:
        time.sleep(_REST_S)
        process = run.redis.info("server")["process_id"]
        os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        if clock_stops:
            run.clocks.move("redis", wall=-seconds)
        os.kill(process, signal.SIGCONT)


def jumping_clocks() -> list[Scenario]:
    """Return crawls whose clocks jump; how much of a rate is used is judged where one jumps once."""
    jumping = tuple(replace(source, may_wait=True) for source in (*PAIR, Source("slow", 1), Source("rare", 0.2)))
    ways: dict[str, tuple[float, Disturbance]] = {
        "clock-set-once": (60, partial(set_once, step=2.0)),
        "clock-set-back-once": (60, partial(set_once, step=-2.0)),
        "clock-set": (105, set_clock),
        "clock-set-and-back": (200, partial(set_clock, apart=(1, 4, 12))),
        "worker-suspended": (100, suspend_worker),
        "redis-suspended": (100, partial(suspend_redis, clock_stops=False)),
        "redis-paused": (100, partial(suspend_redis, clock_stops=True)),
    }
    return [
        Scenario(
            name, PAIR if seconds == 60 else jumping, seconds=seconds, disturb=way, sets_clocks=True, losses=True
        )
        for name, (seconds, way) in ways.items()
    ]


def set_once(run: Run, step: float) -> None:
    """Set Redis' clock forward by `step` (s), or back."""
    time.sleep(run.seconds / 2)
    run.clocks.move("redis", wall=step)


def lowered_override(run: Run) -> None:
    """Set an override below the present rate of the first source: it holds within two seconds."""
    time.sleep(run.seconds * 0.4)
    run.redis.set(KEYS.override_rate_of + "fast", "20")
    at = time.monotonic()
    run.new_rates["fast"] = (at + 2, 20.0)
    run.outages.append(Outage(at, at + 2, patience=1, source="fast"))


def resumed(run: Run) -> None:
    """Resume the halted sources."""
    time.sleep(run.seconds * 0.4)
    run.resumed_at = time.monotonic()
    run.redis.delete(KEYS.halted)


def two_spiders(seconds: float) -> Scenario:
    """Return a crawl in which three workers of one spider and one of another have work for the same sources."""
    sources = (Source("fast", MAXIMUM_RATE), Source("middle", 20), Source("modest", 2))

    def fetched(run: Run) -> list[tuple[int, int]]:
        names = [source.name for source in sources]
        counts = [map(counts_in, run.redis.hmget(keys.counts, names)) for keys in (KEYS, SECOND)]
        return [(one.get("fetched", 0), other.get("fetched", 0)) for one, other in zip(*counts, strict=True)]

    def share(run: Run) -> None:
        """Compare what each spider gets while both have work."""
        time.sleep(run.seconds * 0.1)
        before = fetched(run)
        time.sleep(run.seconds * 0.75)
        for source, then, now in zip(sources, before, fetched(run), strict=True):
            one, other = (later - earlier for earlier, later in zip(then, now, strict=True))
            print(f"{source.name}: {one} of `images`, {other} of `second`")
            if min(one, other) < 0.2 * (one + other) - 1:  # a fifth is promised; an odd one
                run.unequal.append(f"{source.name}: {one} requests of one spider, {other} of the other")

    return Scenario("two-spiders", sources, workers=4, seconds=seconds, disturb=share, second=1)


MIXED = (Source("fast", MAXIMUM_RATE), Source("middle", 40), Source("modest", 5), Source("least", MINIMUM_RATE))
PAIR = (Source("fast", 100), Source("modest", 5))
STAY: Mapping[str, object] = {"MAX_IDLE_TIME_BEFORE_CLOSE": 0}  # the seeds come when all workers are there
LAPSE_SOON: Mapping[str, object] = {"CRAWL_HEARTBEAT_TIMEOUT": 5}  # for workers that are killed or stopped


def redirects(seconds: float) -> Scenario:
    """Return a crawl in which `new` pays for its own arrivals, whoever's pictures have led there."""
    sources = (
        Source("short", 10, "127.0.0.2", redirects=("old", "new")),
        Source("old", 30, "127.0.0.3", redirects=("new",)),
        Source("new", 25, "127.0.0.4", requests=0),
    )
    return Scenario("redirects", sources, seconds=seconds)


def robots_to_one_host(seconds: float, elsewhere: int, apart: int, ordinary: int) -> Scenario:
    """Return a crawl in which the robots.txt of many domains redirects to one host, which has images of its own.

    `apart` of the domains are each sent to a URL of their own, the other `elsewhere` to the host's robots.txt.
    Beside them there are `ordinary` sources, each with a robots.txt of its own. The host gets two requests a
    second, all others the least rate.
    """
    parking = Source("parking", 2, "127.0.3.1", robots="", visited=True)
    found = [parking]
    for number in range(elsewhere + apart):
        host = f"127.0.{4 + number // 200}.{1 + number % 200}"
        robots = "parking/robots.txt" if number < elsewhere else f"parking/{number}/robots.txt"
        name, row = f"parked-{number}", "parked"
        found.append(Source(name, MINIMUM_RATE, host, requests=2, robots=robots, row=row, may_wait=True))
    for number in range(ordinary):
        host = f"127.0.{9 + number // 200}.{1 + number % 200}"
        found.append(Source(f"ordinary-{number}", MINIMUM_RATE, host, robots="", row="ordinary"))
    return Scenario("robots-to-one-host", found, seconds=seconds)


def slow_tls(seconds: float) -> Scenario:
    """Return a crawl whose sources take 2 s for each TLS handshake."""
    sources = (Source("fast", 50, handshake=2.0), Source("modest", 5, handshake=2.0))
    return Scenario(
        "slow-tls", (*sources, Source("least", MINIMUM_RATE, handshake=2.0)), workers=1, seconds=seconds
    )


def slow_tls_stopped(seconds: float) -> Scenario:
    """Return a crawl with handshakes of 1 s, and a worker that is stopped in the middle of them."""
    sources = (Source("fast", 100, handshake=1.0), Source("modest", 5, handshake=1.0))
    stopped_in_them = partial(stopped_worker, begin=0.0, pause=3.0)
    return Scenario("slow-tls-stopped", sources, seconds=seconds, disturb=stopped_in_them)


def hanging_sources(count: int, seconds: float, rate: float = 100) -> Scenario:
    """Return a crawl of one worker: `count` sources of 20 rps that answer after 25 s, beside one of `rate`."""
    requests = min(round(20 * seconds), 20_000 // count)  # more than it gets
    hanging = (
        Source(f"hanging-{n}", 20, _host(n), "hanging", requests=requests, delay=25, hangs="answer")
        for n in range(count)
    )
    return _beside(f"hanging-sources-{count}", rate, hanging, seconds)


def hanging_hosts(count: int, seconds: float, rate: float = 50) -> Scenario:
    """Return a crawl of one worker: `count` new hosts whose name, connect or robots.txt hangs, beside a source."""
    kinds = ("name", "connect", "robots")
    hanging = (
        Source(
            f"new-{n}",
            5,
            f"new-{n}.example" if kinds[n % 3] == "name" else _host(n),
            f"hangs: {kinds[n % 3]}",
            requests=20,
            hangs=kinds[n % 3],
        )
        for n in range(count)
    )
    return _beside("hanging-hosts", rate, hanging, seconds)


def _host(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


def _beside(name: str, rate: float, hanging: Iterable[Source], seconds: float) -> Scenario:
    settings = {"CRAWL_SHUTDOWN_GRACE": 1}
    sources = (Source("fast", rate), *hanging)
    return Scenario(name, sources, workers=1, seconds=seconds, settings=settings, losses=True)


def scenarios() -> list[Scenario]:
    """Return all scenarios in full."""
    # Enough that some are left when the override of a crawl of 24 s must hold.
    slowed_down = (Source("fast", 100, requests=round(100 * (0.4 * 24 + 2) + 20 * 0.4 * 24)), Source("modest", 5))
    modest, held = Source("modest", 20), Source("held", 20, requests=103_000, halted=True)
    crowd = tuple(Source(f"slow-{number}", MINIMUM_RATE, group="slow") for number in range(1000))
    return [
        Scenario("1-worker", MIXED, workers=1),
        Scenario("2-workers", MIXED),
        Scenario("4-workers", MIXED, workers=4),
        Scenario("skewed-clocks", MIXED, workers=3, skew_hours=(0, 5, -7)),
        Scenario("stopped-worker", PAIR, seconds=30, disturb=stopped_worker, settings=LAPSE_SOON, losses=True),
        Scenario("stopped-leader", PAIR, seconds=24, disturb=stopped_leader, settings=LAPSE_SOON, losses=True),
        Scenario("killed-leader", PAIR, disturb=killed_leader, settings=LAPSE_SOON, losses=True),
        Scenario("no-leader", PAIR, disturb=no_leader, settings=LAPSE_SOON, losses=True),
        Scenario("restarted-redis", PAIR, disturb=restarted_redis, losses=True),
        Scenario("killed-redis", PAIR, disturb=partial(restarted_redis, away=0.0), losses=True),
        Scenario("lowered-override", slowed_down, disturb=lowered_override),
        redirects(14),
        two_spiders(40),
        slow_tls(24),
        slow_tls_stopped(24),
        robots_to_one_host(30, elsewhere=560, apart=40, ordinary=300),
        # Fed far more seeds of a halted source than there is room for, then another's.
        Scenario("fed-while-halted", (modest, held), seconds=15, settings={"CRAWL_FRONTIER_HIGH_WATER": 1000}),
        # Most seeds of a source wait beyond its share when it is resumed.
        Scenario(
            "fed-and-resumed",
            (modest, Source("held", 100, halted=True)),
            seconds=20,
            disturb=resumed,
            settings={"CRAWL_FRONTIER_HIGH_WATER": 400},
        ),
        Scenario("1000-slow", (Source("fast", 100), *crowd), seconds=25),
        *(hanging_sources(count, 60) for count in (4, 30, 200)),
        hanging_hosts(300, 60),
        *jumping_clocks(),
        Scenario("slow-answers", (Source("slow", 180, delay=2),), workers=1, seconds=40),
    ]
