"""What is lost, and for how long is a rate exceeded, when Redis forgets or is failed over?

    python -m benchmarks.failover [--only NAME ...] [--keep DIR]

Each scenario is a whole crawl: two workers, web sites that note every arrival (arrivals.py), seeds that are pushed
all the while, a reader of the events (`scrapy events --follow`), and in the middle of it one fault:

- `killed`: a single Redis with `appendfsync everysec` is killed (`kill -9`), and started again on its data.
- `power-loss`: the same, but the file ends where it ended a second before: what had not been synced is gone.
- `failover`: a master, two replicas and three sentinels; the master is killed, a replica takes over, and the old
  master comes back. Sentinels find a master down after two seconds (`down-after-milliseconds 2000`).
- `woken`: the master is suspended (SIGSTOP) until a replica has taken over, and wakes as a second master.
- `partition`: one worker, one sentinel and the master are cut off from the rest, which elects a master of its own,
  and are found again eight seconds later.

The last three come without and with what docs/reliability.md recommends: `min-replicas-to-write 1`,
`min-replicas-max-lag 2` and `down-after-milliseconds 5000`.

And a crawl of four shards on a Redis Cluster of three masters, each with a replica (failover_shards.py;
`cluster-node-timeout 3000`):

- `cluster-killed`: the master that users push seeds to is killed, and comes back when its replica has taken over.
- `cluster-lag`, `cluster-lag-seeds`: a master is killed 0.3 s after its replica was cut off: that of the first
  shard, and the one that users push to. What it did in the meantime is gone.
- `cluster-lag-wait`: as `cluster-lag`, with `CRAWL_REDIS_WAIT=all`: then nothing may be fetched twice, either.
- `cluster-hung`: the master of the first shard is suspended until its replica has taken over.
- `cluster-moved`: the slot of the first shard is moved to another master.

Afterwards each seed is looked for. Those that are lost are pushed once more, and must end then. Ends with 1 when
something is not as docs/reliability.md says: a worker or reader that does not go on by itself or does not stop, an
event twice in the streams, a lost seed that is refused when it is pushed again, or, where nothing may be lost or
exceeded, a lost seed or a second with too many requests. With several shards also when a reader gets an event
twice, a shard whose master was not hurt gets no request for 2 s while there is work (unless that was so before
the fault: then the machine is too busy), or one whose master was hurt gets none within 10 s. Takes some fifteen
minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from benchmarks import failover_shards
from benchmarks.arrivals import Report, Sites
from benchmarks.chaos_redis import Frontier, OneRedis, RedisCluster, Servers
from benchmarks.failover_shards import SHARDS, Shards
from benchmarks.ours import ROOT, SCRAPY, Crawl, event_files, until
from benchmarks.politeness import (
    Workers,
    allowed,
    finish,
    seconds_from,
    seeds_of,
    write_catalogue,
)
from benchmarks.politeness_scenarios import KEYS, Scenario, Source
from benchmarks.redis_servers import Server

SERVICE = "crawl"
_DOWN_AFTER_S = 2.0  # until sentinels find a server down,
_DOWN_AFTER_LAG_S = 5.0  # where the master refuses writes by then
_SHARDED: dict[str, object] = {  # each worker serves all shards
    "CRAWL_SHARDS": SHARDS,
    "CRAWL_SHARD": ",".join(map(str, range(SHARDS))),
}
_SETTINGS: dict[str, object] = {
    "MAX_IDLE_TIME_BEFORE_CLOSE": 0,
    "CRAWL_HEARTBEAT_TIMEOUT": 5,
    "CRAWL_STRAIN": False,  # what is slow here is this machine
}
_PASSWORD = "of-all"
_MAJORITY = "majority"  # the user as whom those on the other side of a partition come
_FEED_S = 0.1  # between two pushes
_AHEAD_S = 2.0  # of work that waits in Redis; see failover_shards.AHEAD_S
_ELECTION_S = 30.0  # for sentinels to make another server the master
_DEMOTION_S = 60.0  # for an old master to become a replica: sentinels look again after a while only
_READY_S = 30.0  # for servers and sentinels to know one another
_QUIET_S = 6.0  # nothing is outstanding: longer than a heartbeat may be late
_LOOK_S = 0.2  # between two looks at that
_END_S = 90.0  # for all seeds to end, beyond the scenario's length
_SPLIT_S = 8.0  # of a partition, after a second master is elected


class Single:
    """One Redis, with `appendfsync everysec`."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, appendfsync="everysec", password=_PASSWORD)
        self.url = f"redis://:{_PASSWORD}@127.0.0.1:{self.server.port}/0"
        self.urls: Sequence[str] = ()
        self._sizes: list[tuple[float, int]] = []  # of the append-only file, with their moments
        self._watched = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note how the append-only file grows."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._watched.set()
            thread.join()

    def _watch(self) -> None:
        while not self._watched.wait(0.01):
            self._sizes.append((time.monotonic(), self.server.append_only_file.stat().st_size))

    def forget(self, seconds: float) -> None:
        """Cut off what was appended in the last `seconds`."""
        end = self._sizes[-1][0] - seconds
        size = next((size for moment, size in reversed(self._sizes) if moment <= end), 0)
        with self.server.append_only_file.open("r+b") as log:
            log.truncate(size)

    def close(self) -> None:
        """End it."""
        self.server.close()


class Cluster:
    """A master, two replicas, and three sentinels that watch them under the name `crawl`.

    The third sentinel stays on the master's side of a partition. The first worker asks that one alone when the
    servers can be parted; everybody else comes as a user of his own then, whom the master can turn away.
    """

    def __init__(self, folder: Path, *, min_replicas: bool, parted: bool) -> None:
        bounds = {"min_replicas_to_write": "1", "min_replicas_max_lag": "2"} if min_replicas else {}
        options: Any = {
            "user": f"{_MAJORITY} on >{_PASSWORD} ~* &* +@all",
            "masteruser": _MAJORITY,
            "repl_diskless_sync_delay": "0",
        } | bounds
        with ExitStack() as started:

            def start(**more: Any) -> Server:
                server = Server(folder, **more)
                started.callback(server.close)
                return server

            self.master = start(password=_PASSWORD, **options)
            place = f"127.0.0.1 {self.master.port}"
            self.replicas = [start(password=_PASSWORD, replicaof=place, **options) for _ in range(2)]
            self.sentinels = [start(sentinel=True) for _ in range(3)]
            self._watch(place, min_replicas=min_replicas, parted=parted)
            self._started = started.pop_all()

    def _watch(self, place: str, *, min_replicas: bool, parted: bool) -> None:
        for sentinel in self.sentinels:
            ask = sentinel.client.execute_command
            ask("SENTINEL", "MONITOR", SERVICE, *place.split(), 2)
            seconds = _DOWN_AFTER_LAG_S if min_replicas else _DOWN_AFTER_S
            down_after = ("down-after-milliseconds", int(seconds * 1000))
            ask("SENTINEL", "SET", SERVICE, "auth-user", _MAJORITY, "auth-pass", _PASSWORD)
            ask("SENTINEL", "SET", SERVICE, *down_after, "failover-timeout", 6000)
        self.url = self._url(self.sentinels)
        self.urls = (self._url(self.sentinels[2:]), self._url(self.sentinels[:2], _MAJORITY)) if parted else ()
        until("the sentinels know all servers", _READY_S, self._complete)

    @staticmethod
    def _url(sentinels: Sequence[Server], user: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
        return f"redis+sentinel://{user}:{_PASSWORD}@{hosts}/{SERVICE}"

    def _complete(self) -> bool:
        for sentinel in self.sentinels:
            known = sentinel.client.sentinel_master(SERVICE)
            if known["num-slaves"] < 2 or known["num-other-sentinels"] < 2:
                return False
        return all(one.client.info("replication")["master_link_status"] == "up" for one in self.replicas)

    def elected(self) -> bool:
        """Tell whether a replica is the master by now."""
        with suppress(redis.RedisError):
            address = self.sentinels[0].client.sentinel_get_master_addr_by_name(SERVICE)
            roles = (one.client.info("replication")["role"] for one in self.replicas if one.port == address[1])
            return next(roles, None) == "master"
        return False

    def demoted(self) -> bool:
        """Tell whether the first master is a replica by now."""
        with suppress(redis.RedisError):
            return bool(self.master.client.info("replication")["role"] == "slave")
        return False

    def part(self) -> None:
        """Cut master and third sentinel off from the others."""
        self.sentinels[2].process.send_signal(signal.SIGSTOP)
        self.master.client.acl_setuser(_MAJORITY, enabled=False)
        with suppress(redis.ResponseError):  # nobody is there
            self.master.client.execute_command("CLIENT", "KILL", "USER", _MAJORITY)

    def join(self) -> None:
        """Undo `part`."""
        self.master.client.acl_setuser(_MAJORITY, enabled=True)
        self.sentinels[2].process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End all."""
        self._started.close()


# The faults


def kill(redis_: Single) -> None:
    """Kill Redis, and start it at once."""
    redis_.server.kill()
    redis_.server.start()


def lose_power(redis_: Single) -> None:
    """Kill Redis, and start it at once on what it had synced a second ago."""
    with redis_.watched():
        time.sleep(1.5)
        redis_.server.kill()
    redis_.forget(1.0)
    redis_.server.start()


def kill_master(cluster: Cluster) -> None:
    """Kill the master; start it again when a replica has taken over."""
    cluster.master.kill()
    until("a replica has taken over", _ELECTION_S, cluster.elected)
    time.sleep(1)
    cluster.master.start()
    until("the old master is a replica", _DEMOTION_S, cluster.demoted)


def wake_master(cluster: Cluster) -> None:
    """Suspend the master until a replica has taken over."""
    cluster.master.process.send_signal(signal.SIGSTOP)
    until("a replica has taken over", _ELECTION_S, cluster.elected)
    cluster.master.process.send_signal(signal.SIGCONT)
    until("the old master is a replica", _DEMOTION_S, cluster.demoted)


def part(cluster: Cluster) -> None:
    """Cut the master off together with a worker, until eight seconds after a replica has taken over."""
    cluster.part()
    until("a replica has taken over", _ELECTION_S, cluster.elected)
    time.sleep(_SPLIT_S)
    cluster.join()
    until("the old master is a replica", _DEMOTION_S, cluster.demoted)


@dataclass(frozen=True)
class Trial:
    """A crawl with a fault, and what it may cost."""

    name: str
    fault: Callable[[Any], None]
    sentinels: bool = True
    min_replicas: bool = False
    lossless: bool = False  # nothing may be lost
    polite: bool = True  # no second with too many requests
    sharded: bool = False  # four shards on a Redis Cluster
    waits: bool = False  # with CRAWL_REDIS_WAIT=all, so that nothing is fetched twice


TRIALS = (
    Trial("killed", kill, sentinels=False, lossless=True),
    Trial("power-loss", lose_power, sentinels=False),
    Trial("failover", kill_master),
    Trial("failover-min-replicas", kill_master, min_replicas=True),
    Trial("woken", wake_master, polite=False),
    Trial("woken-min-replicas", wake_master, min_replicas=True),
    Trial("partition", part, polite=False),
    Trial("partition-min-replicas", part, min_replicas=True),
    *(
        Trial(f"cluster-{name}", fault, sharded=True, lossless=True)
        for name, fault in (
            ("killed", failover_shards.kill),
            ("lag", failover_shards.kill_ahead),
            ("lag-seeds", failover_shards.kill_ahead_of_seeds),
            ("hung", failover_shards.hang),
            ("moved", failover_shards.move),
        )
    ),
    Trial("cluster-lag-wait", failover_shards.kill_ahead, sharded=True, lossless=True, waits=True),
)


# The account


@dataclass
class Account:
    """What came of a trial."""

    name: str
    version: str
    seeds: int
    lost: int = 0  # pushed and acknowledged, and gone without an event or dead letter
    again: int = 0  # of these, pushed once more, and gone again
    doubled: int = 0  # events too many in the streams
    read_twice: int = 0  # events too many in the reader's file
    fetched_twice: int = 0  # requests beyond one a seed
    worst: float = 0.0  # the largest number of requests in a second, as a multiple of what is allowed
    over: float = 0.0  # seconds during which some source had more than it is allowed
    silent: float = 0.0  # seconds without any request, until all was done for the first time
    others_silent: float | None = None  # the same of a shard whose master was not hurt
    elected: float | None = None  # seconds from the fault until a replica had taken over
    away: float | None = None  # seconds from the fault to a request from each shard whose master was hurt
    lacking: int = 0  # bytes that a master had written and its replica had not when that took over
    done_at: float = math.inf  # when that was
    struck_at: float = 0.0  # when the fault began; rates are judged from a second before
    broken: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return it as a row of the table, with what is broken below."""
        row = (
            f"{self.name:24}{self.version:>8}{self.seeds:7}{self.lost:6}{self.again:7}{self.doubled:9}"
            f"{self.read_twice:12}{self.fetched_twice:15}{self.worst:8.2f}{self.over:7.2f}{self.silent:8.1f}"
            f"{_seconds(self.others_silent):>8}{_seconds(self.elected):>9}{_seconds(self.away):>6}{self.lacking:9}"
        )
        return "\n".join([row, *(f"BROKEN: {what}" for what in self.broken)])


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


HEADER = (
    f"{'fault':24}{'Redis':>8}{'seeds':>7}{'lost':>6}{'again':>7}{'doubled':>9}{'read twice':>12}"
    f"{'fetched twice':>15}{'worst':>8}{'over s':>7}{'silent':>8}{'others':>8}"
    f"{'elected':>9}{'away':>6}{'lacking':>9}"
)


def time_over(times: Sequence[float], rate: float, lapses: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the worst sliding second, as a multiple of what is allowed, and for how many seconds one was over.

    Seconds in which the sites were late themselves are left out.
    """
    worst = over = end = 0.0
    for moment, count in zip(times, seconds_from(times), strict=True):
        if any(begin < moment + 1 and late > moment for begin, late in lapses):
            continue
        worst = max(worst, count / allowed(rate))
        if count > allowed(rate):
            over += moment + 1 - max(moment, end)
            end = moment + 1
    return worst, over


class Feeder(threading.Thread):
    """Pushes seeds at the pace of the crawl, and each until Redis has acknowledged it."""

    def __init__(self, servers: Servers, seeds: Sequence[str], rate: float, ahead: float) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._seeds = seeds
        self._rate = rate
        self._ahead = ahead  # seconds
        self._stopped = threading.Event()

    def run(self) -> None:
        """Push them all."""
        ahead, batch = round(self._ahead * self._rate), max(round(_FEED_S * self._rate), 1)
        push(self._servers, self._seeds[:ahead])
        for first in range(ahead, len(self._seeds), batch):
            if self._stopped.wait(_FEED_S):
                return
            push(self._servers, self._seeds[first : first + batch])

    def stop(self) -> None:
        """Push no more."""
        self._stopped.set()
        self.join()


def push(servers: Servers, seeds: Sequence[str]) -> None:
    """Push seeds until they are acknowledged; twice does no harm.

    Raises:
        TimeoutError: they are not.

    """

    def acknowledged() -> bool:
        with suppress(redis.RedisError):
            return servers.push(seeds)
        return False

    until("seeds are pushed", _END_S, acknowledged)


def ends(frontier: Frontier) -> Counter[str]:
    """Return how many events each seed has in the streams."""
    events = frontier.events()
    return Counter(
        event["identifier"] for key in (KEYS.image_events, KEYS.link_rot_events) for event in events[key]
    )


def _redis_of(trial: Trial, folder: Path) -> Any:
    """Start the servers of a trial."""
    if trial.sharded:
        return Shards(folder)
    if trial.sentinels:
        return Cluster(folder, min_replicas=trial.min_replicas, parted=trial.fault is part)
    return Single(folder)


def _version_of(about: Mapping[str, str]) -> str:
    return about.get("valkey_version", about["redis_version"])


def run(
    trial: Trial, seconds: float = 30.0, sources: Mapping[str, float] | None = None, keep: Path | None = None
) -> Account:
    """Run a trial from nothing to nothing; logs and arrivals are left in `keep`, if given."""
    rates = sources or (
        failover_shards.sources() if trial.sharded else {"fast": 100.0, "middle": 40.0, "modest": 5.0}
    )
    scenario = Scenario(trial.name, [Source(name, rate) for name, rate in rates.items()], seconds=seconds)
    listeners = [source.listener for source in scenario.sources]
    settings = _SETTINGS | (_SHARDED if trial.sharded else {})
    settings |= {"CRAWL_REDIS_WAIT": "all"} if trial.waits else {}
    with tempfile.TemporaryDirectory(prefix="failover-") as name, ExitStack() as stack:
        folder = Path(name)
        sites = stack.enter_context(Sites(listeners))
        ports = {one: f"{one.host}:{port}" for one, port in zip(listeners, sites.ports, strict=True)}
        hurt = _redis_of(trial, folder)
        stack.callback(hurt.close)
        crawl = stack.enter_context(Crawl(folder / "crawl", {}, settings, redis_url=hurt.url))
        servers: Servers
        if trial.sharded:
            servers = stack.enter_context(closing(RedisCluster(hurt.cluster, SHARDS, "images")))
        else:
            servers = OneRedis(crawl, "images", "everysec")
        frontier = Frontier(servers, "images")
        write_catalogue(crawl.home / "catalogue.json", scenario.sources)
        workers = stack.enter_context(Workers(crawl, scenario, hurt.urls, servers.shards)).processes
        seeds = seeds_of(scenario, ports)
        result = Account(trial.name, _version_of(crawl.redis.info("server")), len(seeds))
        try:
            reader = stack.enter_context(_reader(crawl))
            ahead = failover_shards.AHEAD_S if trial.sharded else _AHEAD_S
            feeder = Feeder(servers, seeds, sum(rates.values()), ahead)
            feeder.start()
            stack.callback(feeder.stop)
            until("the crawl is under way", 60, lambda: frontier.ended() > len(seeds) / 4)
            until(
                "the reader has begun",
                60,
                lambda: any(path.stat().st_size for path in event_files(crawl.home / "events.jsonl")),
            )
            result.struck_at = time.monotonic()
            trial.fault(hurt)
            result.broken += _finish(crawl, frontier, workers, reader, feeder, result, seeds, seconds)
        finally:
            if keep is not None:
                shutil.copytree(crawl.home, keep / trial.name, ignore=lambda *_: {"redis", "thumbnails"})
                for server in folder.glob("redis-*/log"):
                    shutil.copy(server, keep / trial.name / f"{server.parent.name}.log")
    if keep is not None:
        (keep / trial.name / "arrivals.json").write_text(json.dumps(sites.report))
    _look_at_arrivals(result, rates, sites.report)
    if trial.sharded:
        _look_at_shards(result, hurt, sites.report)
    if trial.lossless and result.lost:
        result.broken.append(f"{result.lost} seeds are lost")
    if trial.waits and result.fetched_twice:
        result.broken.append(f"{result.fetched_twice} images were fetched twice")
    if trial.polite and result.over:
        result.broken.append("a rate was exceeded")
    return result


@contextmanager
def _reader(crawl: Crawl) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process write the events to a file while they come."""
    command = [*SCRAPY, "events", str(crawl.home / "events.jsonl"), "--follow"]
    with (crawl.home / "reader.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=crawl.environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _idle(frontier: Frontier) -> bool:
    """Tell whether nothing is left to do."""
    with suppress(redis.RedisError):
        return not frontier.outstanding() and not frontier.overflow() and not frontier.unread()
    return False


def _wait_for_ends(frontier: Frontier, patience: float) -> None:
    since = time.monotonic()

    def quiet() -> bool:
        nonlocal since
        time.sleep(_LOOK_S)
        if not _idle(frontier):
            since = time.monotonic()
        return time.monotonic() > since + _QUIET_S

    until("all seeds have ended", patience, quiet)


def _finish(
    crawl: Crawl,
    frontier: Frontier,
    workers: Sequence[subprocess.Popen[bytes]],
    reader: subprocess.Popen[bytes],
    feeder: Feeder,
    result: Account,
    seeds: Sequence[str],
    seconds: float,
) -> list[str]:
    """Wait for the end, and count; return what is not as it should be."""
    broken: list[str] = []
    expected = {json.loads(seed)["uuid"]: seed for seed in seeds}
    try:
        feeder.join(seconds + _END_S)
        _wait_for_ends(frontier, seconds + _END_S)
        result.done_at = time.monotonic()
        found = ends(frontier)
        letters = [letter["identifier"] or letter["seed"] for letter in crawl.dead_letters()]
        lost = expected.keys() - found.keys() - set(letters)
        result.lost = len(lost)
        if lost:
            push(frontier.servers, [expected[one] for one in lost])
            _wait_for_ends(frontier, _END_S)
            found = ends(frontier)
            result.again = len(lost - found.keys())
        if letters:
            broken.append(f"{len(letters)} dead letters: {letters[0]} ...")
        result.doubled = (found - Counter(found.keys())).total()
        if result.again:
            broken.append(f"{result.again} lost seeds were refused when they were pushed again")
        if result.doubled:
            broken.append(f"{result.doubled} events are in the streams twice")
        registered = frontier.registered()
        gone = [number for number, one in enumerate(workers) if f":{one.pid}:".encode() not in registered]
        broken += [f"worker {number} has not come back" for number in gone]
        if reader.poll() is not None:
            broken.append(f"the reader ended with status {reader.returncode}")
    except TimeoutError as error:
        broken.append(
            f"{error}: {frontier.outstanding()} outstanding, {frontier.overflow()} beyond, "
            f"{frontier.waiting()} seeds not read"
        )
    broken += finish(workers, lambda: True, 1)
    reader.terminate()
    reader.wait(_END_S)
    read = Counter(event["identifier"] for event in crawl.events() if "identifier" in event)
    result.read_twice = (read - Counter(read.keys())).total()
    return broken


def _look_at_arrivals(result: Account, rates: Mapping[str, float], report: Report) -> None:
    """Count requests, and find the worst second and the longest silence."""
    everything: list[float] = []
    for source, rate in rates.items():
        times = report["arrivals"].get(source, [])
        worst, over = time_over(
            [moment for moment in times if moment > result.struck_at - 1], rate, report["lapses"]
        )
        result.worst, result.over = max(result.worst, worst), max(result.over, over)
        everything += times
    everything.sort()
    result.fetched_twice = max(len(everything) - result.seeds, 0)
    gaps = (after - before for before, after in pairwise(everything) if after < result.done_at)
    result.silent = max(gaps, default=0.0)


def _look_at_shards(result: Account, hurt: Shards, report: Report) -> None:
    """See how long which shards were away, and what only several of them promise."""
    arrivals = {
        shard: [moment for moment in times if moment < result.done_at]
        for shard, times in failover_shards.by_shard(report).items()
    }
    result.lacking = hurt.lacking
    if hurt.elected_at is not None:
        result.elected = hurt.elected_at - hurt.struck_at
    before, result.others_silent = failover_shards.silence_of_others(arrivals, hurt.hurt, result.struck_at)
    result.away = failover_shards.time_away(arrivals, hurt.hurt, hurt.struck_at)
    if result.read_twice:
        result.broken.append(f"{result.read_twice} events were read twice")
    if result.others_silent > max(failover_shards.MOST_SILENT_S, before):
        result.broken.append(f"a shard of another master was silent for {result.others_silent:.1f} s")
    if result.away > failover_shards.MOST_AWAY_S:
        result.broken.append(f"a shard of the master that was hurt got no request for {result.away:.1f} s")


def main() -> int:
    """Run the trials and print what came of them."""
    names = {trial.name: trial for trial in TRIALS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="leave the logs and arrivals of each trial in DIR"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    print(HEADER, flush=True)
    failed = False
    for name in options.only or names:
        result = run(names[name], keep=options.keep)
        failed |= bool(result.broken)
        print(result.text(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
