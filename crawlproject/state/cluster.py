"""A Redis Cluster: connections to the master of one slot.

All keys of a shard have one hash tag, and so are in one slot. Its client is redis-py's ordinary one; only its
connections know of the cluster, as those behind sentinels do of the master. redis-py's own cluster client costs
half as much CPU again, and keeps calls to nodes in health waiting for one that hangs.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from crawlproject.config import ClusterAddress
from crawlproject.state.health import plain
from crawlproject.state.tls import Tls, tls_of

REPLICATED_MS = 1000  # for a replica to have what was written; less than a call may take

_ASK_TIMEOUT_S = 1.0  # for a node to answer, before the next is asked
_ASK_AGAIN_S = 0.2  # between two rounds while no node knows the master
_MOST_NODES = 1_000  # that a cluster should have
_SILENT_S = 5  # that a replica which follows may have said nothing

_Address = tuple[str, int]


# What a node answers, doing nothing, while the slot is moved, or has no master; redis-py takes the code out.
_REFUSALS = {
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.ReadOnlyError: "READONLY",
}


class Slot:
    """One slot of a cluster, and its master: what the connections of a client share.

    Any node says which one that is, and is asked anew once the master does not answer or disowns the slot.
    """

    def __init__(self, cluster: ClusterAddress, key: str) -> None:
        self.number = key_slot(key.encode())
        self.master: _Address | None = None  # None: to be asked for
        self.replicas = 0  # those in health
        self.options: dict[str, Any] = {**cluster.credentials, "tls": tls_of(cluster.tls)}
        # In the order in which they are asked; not by all workers the same one.
        self._nodes = random.sample(cluster.nodes, len(cluster.nodes))
        self._teller: _Address | None = None  # the node that was asked last
        self._asking = asyncio.Lock()
        self._asked_at = -_ASK_AGAIN_S
        self._fault = "none was asked"  # of that node

    async def find(self) -> _Address:
        """Return the master.

        Raises:
            redis.ConnectionError: no node knows one.

        """
        async with self._asking:
            if self.master is None and time.monotonic() > self._asked_at + _ASK_AGAIN_S:
                for node in self._nodes:  # a list of its own: another takes its place
                    if await self._ask(node):
                        break
                else:
                    self._asked_at = time.monotonic()
        if self.master is None:
            raise redis.ConnectionError(f"no node of the Redis Cluster says who has the slot: {self._fault}")
        return self.master

    def doubt(self, address: _Address) -> None:
        """Ask for the master before the next call, as the node at `address` does not answer: others first."""
        if self.master in {None, address}:
            self.master = None
            self._ask_last(*filter(None, (self._teller, address)))

    def point(self, address: _Address) -> None:
        """Ask for the master before the next call: first the node at `address`, as the last one says."""
        self.master, self._asked_at = None, -_ASK_AGAIN_S
        self._nodes = [address, *(node for node in self._nodes if node != address)]

    def _ask_last(self, *addresses: _Address) -> None:
        self._nodes = [*(node for node in self._nodes if node not in addresses), *dict.fromkeys(addresses)]

    async def _ask(self, node: _Address) -> bool:
        """Ask a node for the master; tell whether it knows one."""
        self._teller, (host, port) = node, node
        options = {"socket_connect_timeout": _ASK_TIMEOUT_S, "socket_timeout": _ASK_TIMEOUT_S, **self.options}
        one: Any = _ToNode(host=host, port=port, retry=Retry(NoBackoff(), 0), **options)
        try:
            await one.connect()
            await one.send_command("CLUSTER", "SLOTS")
            slots = await one.read_response()
        except (redis.RedisError, OSError) as error:
            self._fault = f"{host}:{port}: {plain(error)}"
            self._ask_last(node)
            return False
        finally:
            await one.disconnect(nowait=True)
        told = [node]
        for first, last, *members in slots:
            there = [((member[0] or b"").decode() or host, int(member[1])) for member in members]
            told += there
            if first <= self.number <= last:
                self.master, self.replicas = there[0], len(there) - 1
        if self.master is None:
            self._fault = f"{host}:{port}: nobody has it"
            self._ask_last(node)
            return False
        # Last those that REDIS_URL alone names: the same nodes, and the name of one that has gone takes long.
        self._nodes = list(dict.fromkeys((*told, *self._nodes)))[:_MOST_NODES]
        return True


class _ToNode(redis.asyncio.Connection):
    """A connection to a node, whose name is looked up for no longer than the connection may take."""

    def __init__(self, tls: Tls | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls
        self._numeric = ""

    async def _connect(self) -> None:
        fault: OSError | None = None
        for numeric in await _look_up(self.host, self.port, self.socket_connect_timeout or _ASK_TIMEOUT_S):
            self._numeric = numeric
            try:
                await super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                fault = error
            else:
                return
        raise fault or OSError(f"{self.host} has no address")

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"host": self._numeric, "port": self.port}
        if self._tls is not None:
            arguments |= {"ssl": self._tls.context(), "server_hostname": self.host}
        return arguments


class _ToMaster(_ToNode):
    """A connection to whichever node is the master of the slot, and no longer than it is."""

    def __init__(self, slot: Slot, **options: Any) -> None:
        super().__init__(**slot.options, **options)
        self._slot = slot

    async def _connect(self) -> None:
        self.host, self.port = await self._slot.find()
        try:
            await super()._connect()
        except OSError:
            self._slot.doubt((self.host, self.port))
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self.is_connected and self._slot.master != (self.host, self.port):
            await self.disconnect(nowait=True)  # what follows connects
        await super().send_packed_command(command, check_health)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except redis.ResponseError as error:
            if (refused := self._refused(error)) is None:
                raise
            await self.disconnect(nowait=True)
            raise refused from None
        except (redis.ConnectionError, redis.TimeoutError):
            self._slot.doubt((self.host, self.port))
            raise

    def _refused(self, error: redis.ResponseError) -> redis.ConnectionError | None:
        """Return what an error of the node means for the call: it was not made, and may be made again. None: else.

        ASK is never followed: a function would make a second copy of a key that is still to be moved.
        """
        if isinstance(error, exceptions.MovedError):  # first: it is a kind of AskError
            if error.slot_id != self._slot.number:
                return None  # a key without the hash tag: a fault of ours
            self._slot.point((error.host or self.host, error.port))
            return redis.ConnectionError(f"MOVED {error}")
        code = "UNBLOCKED" if str(error).startswith("UNBLOCKED") else _REFUSALS.get(type(error))
        if code is None:
            return None
        self._slot.doubt((self.host, self.port))
        return redis.ConnectionError(f"{code} {error}")


class ShardRedis(redis.asyncio.Redis):
    """A client for the keys of one slot."""

    @classmethod
    def to(cls, cluster: ClusterAddress, key: str, **options: Any) -> ShardRedis:
        """Return a client for the keys in the slot of `key`; `options` are those of its connections."""
        pool = redis.asyncio.ConnectionPool(connection_class=_ToMaster, slot=Slot(cluster, key), **options)
        return cast("ShardRedis", cls.from_pool(pool))

    @property
    def slot(self) -> Slot:
        """Its slot, and the master of that."""
        slot: Slot = self.connection_pool.connection_kwargs["slot"]
        return slot


async def _look_up(host: str, port: int, within_s: float) -> list[str]:
    """Return the addresses of a host, looked up in a thread of its own: name servers may hang for ten seconds.

    Raises:
        TimeoutError: that took longer than it may.
        OSError: it has no address.

    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def tell(addresses: list[str], error: OSError | None) -> None:
        if found.done():  # nobody waits any more
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses)

    def look() -> None:
        addresses: list[str] = []
        fault: OSError | None = None
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(address[0]) for *_, address in rows]
        except OSError as error:
            fault = error
        except UnicodeError:
            fault = OSError(f"{host} is no name of a host")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, addresses, fault)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        async with asyncio.timeout(within_s):
            return await found
    except TimeoutError:
        raise TimeoutError(f"the name {host} is not found within {within_s:g} s") from None


async def has_replica(client: redis.asyncio.Redis) -> bool:
    """Tell whether the master that a client leads to has a replica.

    Where a Redis Cluster knows of none the master is asked: one that has just come back may take over, too.
    """
    if isinstance(client, ShardRedis):
        await client.slot.find()
        if client.slot.replicas > 0:
            return True
    replication: Any = await client.info("replication")
    # One that hangs, or has lost its power, is online there until `repl-timeout`, a minute by default: it has said
    # nothing for longer than any that follows, which says each second how far it is.
    return any(
        isinstance(value, dict) and value.get("state") == "online" and int(value.get("lag", 0)) <= _SILENT_S
        for name, value in replication.items()
        if name.startswith("slave")
    )


async def replicated(client: redis.asyncio.Redis, what: str, write: Callable[[Pipeline], object]) -> list[Any]:
    """Send what `write` puts into a pipeline; return the replies once a replica has it, if its master has any.

    All goes over one connection: WAIT counts what that wrote.

    Raises:
        redis.RedisError: none has confirmed `what` in time, among other things. What was written is written.

    """
    waits = await has_replica(client)
    async with client.pipeline(transaction=False) as pipe:
        write(pipe)
        if waits:
            pipe.execute_command("WAIT", 1, REPLICATED_MS)
        replies = list(await pipe.execute())
    if waits and replies.pop() == 0:
        raise redis.RedisError(f"WAIT: no replica has confirmed {what} within {REPLICATED_MS} ms")
    return replies
