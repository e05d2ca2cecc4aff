"""Faults of a Redis Cluster with the shards of a crawl, for failover.py: a master is lost, a slot is moved."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import redis

from benchmarks.arrivals import Report
from benchmarks.ours import until
from benchmarks.redis_servers import Cluster, Server
from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of

SHARDS = 4
NODE_TIMEOUT_S = 3.0  # cluster-node-timeout: a master is replaced after one and a half to twice that
LAG_S = 0.3  # for which a replica has been cut off when its master is killed
MOST_SILENT_S = 2.0  # for a shard whose master was not hurt
MOST_AWAY_S = 10.0  # until the shards of the one that was hurt get requests again
AHEAD_S = 12.0  # of work that waits in Redis: no seeds come while the master that users push to is away
_IN_FLIGHT_S = 1.0  # for requests whose slots were given out before the fault to arrive
_ELECTION_S = 60.0  # for a replica to take over
_WHOLE_S = 90.0  # for the old master to be its replica
_USERS_SEEDS = "images:start_urls"


def sources() -> dict[str, float]:
    """Return the rates of four sources, one in each shard."""
    names = [next(name for n in count() if shard_of(name := f"site{n}", SHARDS) == k) for k in range(SHARDS)]
    return {name: 10.0 if number % 2 else 5.0 for number, name in enumerate(names)}


class Shards:
    """Three masters and three replicas with the shards of a crawl; `hurt` are those that a fault has struck."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, node_timeout=NODE_TIMEOUT_S)
        self.url = self.cluster.url
        self.urls: Sequence[str] = ()
        self.hurt: frozenset[int] = frozenset()
        self.struck_at = 0.0  # when the fault began
        self.elected_at: float | None = None  # when a replica had taken over
        self.lacking = 0  # bytes that the master had written and the replica that took over had not

    def key_of(self, shard: int) -> str:
        """Return a key that is in a shard."""
        return Keys(shard_namespace("crawl", shard, SHARDS), "images").seeds

    def strike(self, key: str) -> tuple[Server, Server]:
        """Return the master that has a key, whose shards are to be hurt, and its replica."""
        master = self.cluster.owner_of(key)
        owners = {shard: self.cluster.owner_of(self.key_of(shard)) for shard in range(SHARDS)}
        self.hurt = frozenset(shard for shard, owner in owners.items() if owner is master)
        return master, self.cluster.replica_of(master)

    def close(self) -> None:
        """End all nodes."""
        self.cluster.close()


def _is_master(node: Server) -> bool:
    try:
        return bool(node.client.info("replication")["role"] == "master")
    except redis.RedisError:
        return False


def _wait_for_failover(shards: Shards, replica: Server, bring_back: Callable[[], None]) -> None:
    until("the replica has taken over", _ELECTION_S, partial(_is_master, replica))
    shards.elected_at = time.monotonic()
    bring_back()
    until("the old master is a replica", _WHOLE_S, shards.cluster.is_whole)


def kill(shards: Shards) -> None:
    """Kill the master that users push seeds to; start it again when its replica has taken over."""
    master, replica = shards.strike(_USERS_SEEDS)
    shards.struck_at = time.monotonic()
    master.kill()
    _wait_for_failover(shards, replica, master.start)


def _kill_ahead(shards: Shards, key: str) -> None:
    """Cut the replica of the master that has a key off, and kill the master `LAG_S` later.

    The replica is suspended in between, so that it cannot connect again.
    """
    master, replica = shards.strike(key)
    replica.process.send_signal(signal.SIGSTOP)
    master.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
    sent = master.client.info("replication")["master_repl_offset"]
    time.sleep(LAG_S)
    written = master.client.info("replication")["master_repl_offset"]
    shards.struck_at = time.monotonic()
    master.kill()
    replica.process.send_signal(signal.SIGCONT)
    taken = replica.client.info("replication")["slave_repl_offset"]
    if not taken <= sent < written:
        raise AssertionError(f"the replica has {taken} B; {sent} were sent, {written} written")
    shards.lacking = written - taken
    _wait_for_failover(shards, replica, master.start)


def kill_ahead_of_seeds(shards: Shards) -> None:
    """Kill the master that users push seeds to; what it did in the last 0.3 s is not on its replica."""
    _kill_ahead(shards, _USERS_SEEDS)


def kill_ahead(shards: Shards) -> None:
    """Kill the master of the first shard; what it did in the last 0.3 s is not on its replica."""
    _kill_ahead(shards, shards.key_of(0))


def hang(shards: Shards) -> None:
    """Suspend the master of the first shard until its replica has taken over."""
    master, replica = shards.strike(shards.key_of(0))
    shards.struck_at = time.monotonic()
    master.process.send_signal(signal.SIGSTOP)
    _wait_for_failover(shards, replica, partial(master.process.send_signal, signal.SIGCONT))


def move(shards: Shards) -> None:
    """Move the slot of the first shard to another master."""
    shards.hurt = frozenset({0})
    shards.struck_at = time.monotonic()
    shards.cluster.move_slot(shards.key_of(0))
    until("all nodes know", _WHOLE_S, shards.cluster.is_whole)


# The account


def silence_of_others(
    arrivals: Mapping[int, Sequence[float]], hurt: frozenset[int], since: float
) -> tuple[float, float]:
    """Return how long a shard that was not hurt got no request at most, before the fault and since (s).

    `arrivals` are in order, by shard. What happens before the fault, too, is the machine's.
    """
    gaps = [
        (after, after - before)
        for shard, times in arrivals.items()
        if shard not in hurt
        for before, after in pairwise(times)
    ]
    before = max((gap for end, gap in gaps if end <= since), default=0.0)
    return before, max((gap for end, gap in gaps if end > since), default=math.inf)


def time_away(arrivals: Mapping[int, Sequence[float]], hurt: frozenset[int], since: float) -> float:
    """Return how long after the fault the last of the shards that were hurt got a request again (s)."""
    again = (
        next((moment - since for moment in arrivals.get(shard, ()) if moment > since + _IN_FLIGHT_S), math.inf)
        for shard in hurt
    )
    return max(again, default=math.inf)


def by_shard(report: Report) -> dict[int, list[float]]:
    """Return the arrivals at all sources of each shard, in order."""
    found: dict[int, list[float]] = {}
    for source, times in report["arrivals"].items():
        found.setdefault(shard_of(source, SHARDS), []).extend(times)
    return {shard: sorted(times) for shard, times in found.items()}
