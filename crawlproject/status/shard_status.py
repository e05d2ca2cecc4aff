"""Where each shard of a crawl is, and how it is doing."""

from __future__ import annotations

from typing import Any, NamedTuple

from crawlproject.state.client import State
from crawlproject.state.master import master_of
from crawlproject.state.numbers import whole_number


class ShardStatus(NamedTuple):
    """A shard, for people and machines.

    `tag` is what its keys begin with, `leader` the worker that leads it, None without one. `workers` and
    `requests` are the living and the outstanding ones of one spider; `sent` is what waits there for other shards.
    `node_bytes` is the memory in use of its node, for all that is there. `replica_lag_bytes` is how far the one
    replica is behind that is furthest ahead, `replica_lag_s` how many seconds ago it was last heard from; None
    without a replica.
    """

    shard: int
    tag: str
    node: str
    leader: str | None
    workers: int
    sources: int
    requests: int
    sent: int
    node_bytes: int
    replicas: int
    replica_lag_bytes: int | None
    replica_lag_s: int | None


async def shard_status(state: State) -> ShardStatus:
    """Return the status of a shard.

    Raises:
        REDIS_TROUBLE: it does not answer.

    """
    client: Any = state.redis
    keys = state.keys
    async with client.pipeline(transaction=False) as pipe:
        pipe.get(keys.leader)
        pipe.scard(keys.sources)
        pipe.hget(keys.counters, "outstanding")
        pipe.info("memory")
        pipe.info("replication")
        for number in range(state.count):
            pipe.llen(f"{keys.foreign_of}{number}")
        # a key that holds something else counts as none
        leader, sources, requests, memory, replication, *waiting = await pipe.execute(raise_on_error=False)
    for answer in (memory, replication):
        if isinstance(answer, Exception):
            raise answer
    offset = int(replication.get("master_repl_offset", 0))
    replicas = [
        one
        for name, one in replication.items()
        if name.startswith("slave") and isinstance(one, dict) and one.get("state") == "online"
    ]
    ahead = max(replicas, key=lambda one: int(one["offset"]), default=None)
    return ShardStatus(
        state.number,
        keys.namespace,
        node_of(state),
        leader.decode(errors="replace") if isinstance(leader, bytes) else None,
        len(await state.scripts.alive(timeout=state.config.heartbeat_timeout)),
        sources if isinstance(sources, int) else 0,
        (whole_number(requests) or 0) if isinstance(requests, bytes) else 0,
        sum(length for length in waiting if isinstance(length, int)),
        int(memory.get("used_memory", 0)),
        len(replicas),
        None if ahead is None else max(offset - int(ahead["offset"]), 0),
        None if ahead is None else int(ahead["lag"]),
    )


def node_of(state: State) -> str:
    """Return where the node of a shard is, after it has answered."""
    client = state.redis
    if (master := master_of(client)) is not None:
        host, port = master.address or ("?", "?")
        return f"{host}:{port}"
    where = client.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host')}:{where.get('port', '')}".rstrip(":"))
