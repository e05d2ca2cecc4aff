"""What is lost, and for how long is a rate exceeded, when Redis forgets or is failed over?

    python -m benchmarks.failover [--only NAME ...] [--keep DIR]

Each trial is a whole crawl as in chaos.py: two workers, web sites that note every arrival (arrivals.py), seeds
that are pushed all the while, readers of the events, and in the middle of it one fault of `TRIALS`; the methods of
`Single`, `Watched` and `Sharded` say what each does. Those with `min-replicas` have what docs/reliability.md
recommends: `min-replicas-to-write 1`, `min-replicas-max-lag 2` and `down-after-milliseconds 5000`. With
`cluster-lag-wait`, which has `CRAWL_REDIS_WAIT=all`, nothing may be fetched twice, either.

Afterwards each seed is looked for. Those that are lost are pushed once more, and must end then. Ends with 1 when
something is not as docs/reliability.md says: a worker that does not go on by itself or does not stop, an event
twice in the streams, a lost seed that is refused when it is pushed again, or, where nothing may be lost or
exceeded, a lost seed, an event read twice, or a second with too many requests. With several shards also when a
shard whose master was not hurt gets no request for 2 s while there is work (unless that was so before the fault:
then the machine is too busy), or one whose master was hurt gets none within 10 s. Takes some fifteen minutes.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import redis

from benchmarks.arrivals import Listener, Report, Sites, time_over
from benchmarks.chaos import KEYS, Account, Chaos, Plan, account, crawl_of, lines_of, seeds_of
from benchmarks.chaos_redis import Frontier
from benchmarks.ours import Crawl, events_in, options, until
from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of
from demo.redis_servers import Cluster, Server

SERVICE = "crawl"
SHARDS = 4
_PASSWORD = "of-all"
_MAJORITY = "majority"  # the user as whom those on the other side of a partition come
_DOWN_AFTER_S = 2.0  # until sentinels find a server down,
_DOWN_AFTER_LAG_S = 5.0  # where the master refuses writes by then
_NODE_TIMEOUT_S = 3.0  # cluster-node-timeout: a master is replaced after one and a half to twice that
_LAG_S = 0.3  # for which a replica has been cut off when its master is killed
_ELECTION_S = 60.0  # for another server to become the master
_DEMOTION_S = 90.0  # for an old master to become a replica: sentinels look again after a while only
_READY_S = 30.0  # for servers and sentinels to know one another
_SPLIT_S = 8.0  # of a partition, after a second master is elected
_MOST_SILENT_S = 2.0  # for a shard whose master was not hurt
_MOST_AWAY_S = 10.0  # until the shards of the one that was hurt get requests again
_IN_FLIGHT_S = 1.0  # for requests whose slots were given out before the fault to arrive


class Single:
    """One Redis, with `appendfsync everysec`."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, appendfsync="everysec", password=_PASSWORD)
        self.url = f"redis://:{_PASSWORD}@127.0.0.1:{self.server.port}/0"
        self.urls: Sequence[str] = ()

    def kill(self) -> None:
        """Kill it, and start it at once."""
        self.server.kill()
        self.server.start()

    def lose_power(self) -> None:
        """Kill it, and start it at once on what it had synced a second ago."""
        sizes, end = [], time.monotonic() + 1.5
        while time.monotonic() < end:
            sizes.append((time.monotonic(), self.server.append_only_file.stat().st_size))
            time.sleep(0.01)
        self.server.kill()
        synced = next(size for moment, size in reversed(sizes) if moment <= sizes[-1][0] - 1.0)
        with self.server.append_only_file.open("r+b") as log:
            log.truncate(synced)
        self.server.start()

    def close(self) -> None:
        """End it."""
        self.server.close()


class Watched:
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
            for sentinel in self.sentinels:
                ask = sentinel.client.execute_command
                ask("SENTINEL", "MONITOR", SERVICE, *place.split(), 2)
                down_after = round(1000 * (_DOWN_AFTER_LAG_S if min_replicas else _DOWN_AFTER_S))
                ask("SENTINEL", "SET", SERVICE, "auth-user", _MAJORITY, "auth-pass", _PASSWORD)
                ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", down_after, "failover-timeout", 6000)
            self.url = self._url(self.sentinels)
            parts = (self._url(self.sentinels[2:]), self._url(self.sentinels[:2], _MAJORITY))
            self.urls: Sequence[str] = parts if parted else ()
            until("the sentinels know all servers", _READY_S, self._complete)
            self._started = started.pop_all()

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

    def _wait_for_election(self) -> None:
        until("a replica has taken over", _ELECTION_S, lambda: any(map(_is_master, self.replicas)))

    def _wait_for_demotion(self) -> None:
        until("the old master is a replica", _DEMOTION_S, lambda: _role_of(self.master) == "slave")

    def kill(self) -> None:
        """Kill the master; start it again when a replica has taken over."""
        self.master.kill()
        self._wait_for_election()
        time.sleep(1)
        self.master.start()
        self._wait_for_demotion()

    def suspend(self) -> None:
        """Suspend the master until a replica has taken over."""
        self.master.process.send_signal(signal.SIGSTOP)
        self._wait_for_election()
        self.master.process.send_signal(signal.SIGCONT)
        self._wait_for_demotion()

    def part(self) -> None:
        """Cut master and third sentinel off with a worker, until some time after a replica has taken over."""
        self.sentinels[2].process.send_signal(signal.SIGSTOP)
        self.master.client.acl_setuser(_MAJORITY, enabled=False)
        with suppress(redis.ResponseError):  # nobody is there
            self.master.client.execute_command("CLIENT", "KILL", "USER", _MAJORITY)
        self._wait_for_election()
        time.sleep(_SPLIT_S)
        self.master.client.acl_setuser(_MAJORITY, enabled=True)
        self.sentinels[2].process.send_signal(signal.SIGCONT)
        self._wait_for_demotion()

    def close(self) -> None:
        """End all."""
        self._started.close()


def _role_of(server: Server) -> str:
    try:
        return str(server.client.info("replication")["role"])
    except redis.RedisError:
        return ""


def _is_master(server: Server) -> bool:
    return _role_of(server) == "master"


class Sharded:
    """Three masters and three replicas with the shards of a crawl; `hurt` are those that a fault has struck."""

    urls: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, node_timeout=_NODE_TIMEOUT_S)
        self.url = self.cluster.url
        self.hurt: frozenset[int] = frozenset()
        self.struck_at = 0.0

    def key_of(self, shard: int) -> str:
        """Return a key that is in a shard."""
        return Keys(shard_namespace("crawl", shard, SHARDS), "images").seeds

    def _strike(self, key: str) -> tuple[Server, Server]:
        """Return the master that has a key, whose shards are to be hurt, and its replica."""
        master = self.cluster.owner_of(key)
        owners = {shard: self.cluster.owner_of(self.key_of(shard)) for shard in range(SHARDS)}
        self.hurt = frozenset(shard for shard, owner in owners.items() if owner is master)
        self.struck_at = time.monotonic()
        return master, self.cluster.replica_of(master)

    def _wait_for_failover(self, replica: Server, bring_back: Callable[[], None]) -> None:
        until("the replica has taken over", _ELECTION_S, partial(_is_master, replica))
        bring_back()
        until("the old master is a replica", _DEMOTION_S, self.cluster.is_whole)

    def kill(self) -> None:
        """Kill the master that users push seeds to; start it again when its replica has taken over."""
        master, replica = self._strike(KEYS.seeds)
        master.kill()
        self._wait_for_failover(replica, master.start)

    def kill_ahead(self, *, of_seeds: bool = False) -> None:
        """Cut the replica of a master off, and kill the master `_LAG_S` later: what it did meanwhile is gone.

        The replica is suspended in between, so that it cannot connect again.
        """
        master, replica = self._strike(KEYS.seeds if of_seeds else self.key_of(0))
        replica.process.send_signal(signal.SIGSTOP)
        master.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        sent = master.client.info("replication")["master_repl_offset"]
        time.sleep(_LAG_S)
        written = master.client.info("replication")["master_repl_offset"]
        self.struck_at = time.monotonic()
        master.kill()
        replica.process.send_signal(signal.SIGCONT)
        taken = replica.client.info("replication")["slave_repl_offset"]
        if not taken <= sent < written:
            raise AssertionError(f"the replica has {taken} B; {sent} were sent, {written} written")
        self._wait_for_failover(replica, master.start)

    def suspend(self) -> None:
        """Suspend the master of the first shard until its replica has taken over."""
        master, replica = self._strike(self.key_of(0))
        master.process.send_signal(signal.SIGSTOP)
        self._wait_for_failover(replica, partial(master.process.send_signal, signal.SIGCONT))

    def move(self) -> None:
        """Move the slot of the first shard to another master."""
        self.hurt, self.struck_at = frozenset({0}), time.monotonic()
        self.cluster.move_slot(self.key_of(0))
        until("all nodes know", _DEMOTION_S, self.cluster.is_whole)

    def close(self) -> None:
        """End all nodes."""
        self.cluster.close()


@dataclass(frozen=True)
class Trial:
    """A crawl with a fault, and what it may cost."""

    name: str
    fault: Callable[[Any], None]
    min_replicas: bool = False
    lossless: bool = False  # nothing may be lost, nor read twice
    polite: bool = True  # no second with too many requests
    waits: bool = False  # with CRAWL_REDIS_WAIT=all, so that nothing is fetched twice

    def start(self, folder: Path) -> Any:
        """Start its servers."""
        if self.is_sharded:
            return Sharded(folder)
        if self.fault in {Single.kill, Single.lose_power}:
            return Single(folder)
        return Watched(folder, min_replicas=self.min_replicas, parted=self.fault is Watched.part)

    @property
    def is_sharded(self) -> bool:
        """Whether it is of several shards."""
        return self.name.startswith("cluster-")


TRIALS = (
    Trial("killed", Single.kill, lossless=True),
    Trial("power-loss", Single.lose_power),
    Trial("failover", Watched.kill),
    Trial("failover-min-replicas", Watched.kill, min_replicas=True),
    Trial("woken", Watched.suspend, polite=False),
    Trial("woken-min-replicas", Watched.suspend, min_replicas=True),
    Trial("partition", Watched.part, polite=False),
    Trial("partition-min-replicas", Watched.part, min_replicas=True),
    Trial("cluster-killed", Sharded.kill, lossless=True),
    Trial("cluster-lag", Sharded.kill_ahead, lossless=True),
    Trial("cluster-lag-seeds", partial(Sharded.kill_ahead, of_seeds=True), lossless=True),
    Trial("cluster-hung", Sharded.suspend, lossless=True),
    Trial("cluster-moved", Sharded.move, lossless=True),
    Trial("cluster-lag-wait", Sharded.kill_ahead, lossless=True, waits=True),
)


class Failover(Chaos):
    """A crawl that one fault strikes, when a quarter of its seeds has ended."""

    def __init__(
        self, trial: Trial, servers: Any, lines: Mapping[str, str], plan: Plan, crawl: Crawl, sites: Sites
    ) -> None:
        super().__init__(plan, crawl, sites, Frontier(servers.url, plan.spider, plan.shards), None)
        self._trial = trial
        self._servers = servers
        self._lines = lines
        self._fault: threading.Thread | None = None
        self.struck_at = self.done_at = math.inf
        self.lost = self.again = 0

    def start_worker(self) -> None:
        """Start one more worker, on its side of a partition."""
        urls = self._servers.urls or [self.crawl.redis_url]
        self.crawl.redis_url, url = urls[len(self.workers) % len(urls)], self.crawl.redis_url
        super().start_worker()
        self.crawl.redis_url = url

    def is_under_way(self) -> bool:
        """Strike when it is time; tell whether the fault is over."""
        if self._fault is None and self.frontier.ended() > len(self._lines) / 4:
            self.struck_at = time.monotonic()
            self._fault = threading.Thread(target=self._strike_once)
            self._fault.start()
        return self._fault is None or self._fault.is_alive()

    def _strike_once(self) -> None:
        try:
            self._trial.fault(self._servers)
        except Exception as error:  # of whatever kind: the crawl is judged, and this with it
            self.broken.append(f"the fault: {error!r}")

    def end(self) -> None:
        """Push once more what was lost, and stop all."""
        self.done_at = time.monotonic() - self.quiet_s
        missing = self._missing()
        self.lost = len(missing)
        if missing:
            self.disturb([self._lines[one] for one in missing])
            self.again = len(self._missing())
        super().end()

    def _missing(self) -> set[str]:
        events = self.frontier.events()
        ended = {event["identifier"] for stream in events for event in events[stream] if "identifier" in event}
        return self._lines.keys() - ended


@dataclass
class Result:
    """What came of a trial."""

    trial: Trial
    seeds: int
    lost: int = 0  # pushed and acknowledged, and gone without an event
    read_twice: int = 0  # events too many in a reader's files
    fetched_twice: int = 0  # requests beyond those that each seed needs
    worst: float = 0.0  # the largest number of requests in a second, as a multiple of what is allowed
    over: float = 0.0  # seconds during which some source had more than it is allowed
    silent: float = 0.0  # seconds without any request, until all was done for the first time
    others: float = math.nan  # the same of a shard whose master was not hurt
    away: float = math.nan  # seconds from the fault to a request from each shard whose master was hurt
    broken: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return it as a row of the table, with what is broken below."""
        row = f"{self.trial.name:24}" + "".join(
            f"{getattr(self, name):{len(title) + 3}.{digits}f}" for title, (name, digits) in COLUMNS.items()
        )
        return "\n".join([row, *(f"BROKEN: {what}" for what in self.broken)])


COLUMNS = {
    "seeds": ("seeds", 0),
    "lost": ("lost", 0),
    "read twice": ("read_twice", 0),
    "fetched twice": ("fetched_twice", 0),
    "worst": ("worst", 2),
    "over s": ("over", 2),
    "silent": ("silent", 1),
    "others": ("others", 1),
    "away": ("away", 1),
}


def rates_of(trial: Trial) -> dict[str, float]:
    """Return the rates of the sources; of several shards there is one in each."""
    if not trial.is_sharded:
        return {"fast": 100.0, "middle": 40.0, "modest": 5.0}
    names = [next(name for n in count() if shard_of(name := f"site{n}", SHARDS) == k) for k in range(SHARDS)]
    return {name: 10.0 if number % 2 else 5.0 for number, name in enumerate(names)}


def run(trial: Trial, seconds: float = 30.0, share: float = 1.0, keep: Path | None = None) -> Result:
    """Run a trial from nothing to nothing, at a share of the rates; logs are left in `keep`, if given."""
    rates = {name: rate * share for name, rate in rates_of(trial).items()}
    plan = Plan(
        round(sum(rates.values()) * seconds),
        random=0,
        workers=2,
        rates=rates,
        faults=("its own",),
        rounds=0,
        heartbeat_timeout=5,
        ahead=12.0 if trial.is_sharded else 2.0,  # no seeds come while the master that users push to is away
        shards=SHARDS if trial.is_sharded else 1,
    )
    seeds = [seed for seed in seeds_of(plan) if seed.kind == "picture"]  # each needs one request
    more = {"CRAWL_REDIS_WAIT": "all"} if trial.waits else {}
    with tempfile.TemporaryDirectory(prefix="failover-") as name, ExitStack() as stack:
        folder = Path(name)
        sites = stack.enter_context(Sites([Listener("127.0.0.1", source) for source in rates]))
        servers = trial.start(folder)
        stack.callback(servers.close)
        crawl = stack.enter_context(crawl_of(plan, folder, servers.url, **more))
        lines = lines_of(plan, seeds, sites)
        by_name = {seed.identifier: line for seed, line in zip(seeds, lines, strict=True)}
        chaos = Failover(trial, servers, by_name, plan, crawl, sites)
        stack.enter_context(chaos.frontier)
        try:
            found = account(chaos, seeds, chaos.run(lines), with_files=trial.lossless)
            result = _judged(trial, chaos, found)
        finally:
            if keep is not None:
                crawl.keep_in(keep / trial.name)
                for log in folder.glob("redis-*/log"):
                    shutil.copy(log, keep / trial.name / f"{log.parent.name}.log")
    if keep is not None:
        (keep / trial.name / "arrivals.json").write_text(json.dumps(sites.report))
    _look_at_arrivals(result, chaos, sites.report)
    if trial.is_sharded:
        _look_at_shards(result, chaos, servers, sites.report)
    return result


def _judged(trial: Trial, chaos: Failover, found: Account) -> Result:
    """Return what the account says."""
    read_twice = 0
    for reader in chaos.readers.values():
        read = Counter(event.get("identifier") for path in reader.files for event in events_in(path))
        read_twice = max(read_twice, (read - Counter(read.keys())).total())
    result = Result(trial, found.seeds, chaos.lost, read_twice, broken=found.broken)
    if chaos.again:
        result.broken.append(f"{chaos.again} lost seeds were refused when they were pushed again")
    if found.doubled:
        result.broken.append(f"{len(found.doubled)} events are in the streams twice")
    result.broken += [f"{number} {what}" for what, number in found.outcomes.items() if what.startswith("dead")]
    if trial.lossless and (chaos.lost or read_twice):
        result.broken.append(f"{chaos.lost} seeds are lost, {read_twice} events were read twice")
    return result


def _look_at_arrivals(result: Result, chaos: Failover, report: Report) -> None:
    """Count requests, and find the worst second and the longest silence."""
    everything: list[float] = []
    for source, rate in chaos.plan.rates.items():
        times = report["pictures"].get(source, [])
        since = [moment for moment in times if moment > chaos.struck_at - 1]
        worst, over = time_over(since, rate, report["lapses"])
        result.worst, result.over = max(result.worst, worst), max(result.over, over)
        everything += times
    everything.sort()
    result.fetched_twice = max(len(everything) - result.seeds, 0)
    gaps = (after - before for before, after in pairwise(everything) if after < chaos.done_at)
    result.silent = max(gaps, default=0.0)
    if result.trial.waits and result.fetched_twice:
        result.broken.append(f"{result.fetched_twice} images were fetched twice")
    if result.trial.polite and result.over:
        result.broken.append("a rate was exceeded")


def _look_at_shards(result: Result, chaos: Failover, servers: Sharded, report: Report) -> None:
    """See how long which shards were away; each has one source."""
    others: list[tuple[float, float]] = []  # ends and lengths of the gaps
    away = []
    for source, times in report["pictures"].items():
        if shard_of(source, SHARDS) not in servers.hurt:
            others += [(after, after - before) for before, after in pairwise(times) if after < chaos.done_at]
            continue
        since = servers.struck_at + _IN_FLIGHT_S
        away.append(next((moment - servers.struck_at for moment in times if moment > since), math.inf))
    before = max((gap for end, gap in others if end <= chaos.struck_at), default=0.0)
    result.others = max((gap for end, gap in others if end > chaos.struck_at), default=math.inf)
    result.away = max(away, default=math.inf)
    if result.others > max(_MOST_SILENT_S, before):
        result.broken.append(f"a shard of another master was silent for {result.others:.1f} s")
    if result.away > _MOST_AWAY_S:
        result.broken.append(f"a shard of the master that was hurt got no request for {result.away:.1f} s")


def main() -> int:
    """Run the trials and print what came of them."""
    names = {trial.name: trial for trial in TRIALS}
    chosen = options("failover", __doc__, names).parse_args()
    print(f"{'fault':24}" + "".join(f"   {title}" for title in COLUMNS), flush=True)
    failed = False
    for name in chosen.only or names:
        result = run(names[name], keep=chosen.keep)
        failed |= bool(result.broken)
        print(result.text(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
