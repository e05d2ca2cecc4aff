"""Connections to the master, whichever server that is: of a slot of a Redis Cluster, or of what sentinels watch.

All keys of a shard have one hash tag, and so are in one slot. The client is redis-py's ordinary one; only its
connections know who is the master. redis-py's own client of clusters costs half as much CPU again, and keeps calls
to nodes in health waiting for one that hangs; its connections by sentinels stay with a master that was replaced.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from crawlproject.config import MasterAddress
from crawlproject.state.health import plain
from crawlproject.threads import in_thread

REPLICATED_MS = 1000  # for a replica to have what was written; less than a call may take

_ASK_TIMEOUT_S = 1.0  # for a node to answer, before the next is asked
_ASK_AGAIN_S = 0.2  # between two rounds while no node knows the master
_FOLLOW_EVERY_S = 1.0  # between two questions to sentinels
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


class Master:
    """The master of a slot, or of what sentinels watch: what the connections of a client share.

    Any node says which one that is, and is asked anew once the master does not answer or disowns the slot.
    """

    def __init__(self, told: MasterAddress, key: str) -> None:
        self.told = told
        self.slot = key_slot(key.encode())
        self.address: _Address | None = None  # None: to be asked for
        self.replicas = 0  # of a cluster's, those in health
        # In the order in which they are asked; not by all workers the same one.
        self._nodes = random.sample(told.nodes, len(told.nodes))
        self._teller: _Address | None = None  # the node that was asked last
        self._asking = asyncio.Lock()
        self._asked_at = -_ASK_AGAIN_S
        self._fault = "none was asked"  # of that node

    async def find(self) -> _Address:
        """Return its address.

        Raises:
            redis.ConnectionError: no node knows one.

        """
        async with self._asking:
            if self.address is None and time.monotonic() > self._asked_at + _ASK_AGAIN_S:
                await self._ask_each()
        if self.address is None:
            who = "no sentinel knows a master" if self.told.service else "no node of the cluster knows the master"
            raise redis.ConnectionError(f"{who} at the moment: {self._fault}")
        return self.address

    async def follow(self) -> None:
        """Ask the sentinels each second, for ever.

        A master that they have replaced, because it hung or was cut off, does not know until they tell it, ten
        seconds after it is back. What is written there meanwhile is lost.
        """
        while True:
            await asyncio.sleep(_FOLLOW_EVERY_S)
            async with self._asking:
                await self._ask_each()

    def doubt(self, address: _Address) -> None:
        """Ask for the master before the next call, as the node at `address` does not answer: others first."""
        if self.address in {None, address}:
            self.address = None
            self._ask_last(*filter(None, (self._teller, address)))

    def point(self, address: _Address) -> None:
        """Ask for the master before the next call: first the node at `address`, as the last one says."""
        self.address, self._asked_at = None, -_ASK_AGAIN_S
        self._nodes = [address, *(node for node in self._nodes if node != address)]

    def _ask_last(self, *addresses: _Address) -> None:
        last = [node for node in dict.fromkeys(addresses) if not self.told.service or node in self._nodes]
        self._nodes = [*(node for node in self._nodes if node not in addresses), *last]

    async def _ask_each(self) -> None:
        """Ask nodes until one knows the master. If none does, it remains the one that it was."""
        for node in self._nodes:  # a list of its own: another takes its place
            if await self._ask(node):
                return
        self._asked_at = time.monotonic()

    async def _ask(self, node: _Address) -> bool:
        """Ask a node for the master; tell whether it knows one."""
        self._teller, (host, port), told = node, node, self.told
        one: Any = _ToNode(
            host=host,
            port=port,
            tls=told.tls,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=_ASK_TIMEOUT_S,
            socket_timeout=_ASK_TIMEOUT_S,
            **(told.sentinel_credentials if told.service else told.credentials),
        )
        question = ("SENTINEL", "MASTER", told.service) if told.service else ("CLUSTER", "SLOTS")
        try:
            await one.connect()
            await one.send_command(*question)
            answer = await one.read_response()
            found = self._of_service(answer) if told.service else self._of_slot(answer, node)
        except (redis.RedisError, OSError) as error:
            self._fault = f"{host}:{port}: {plain(error)}"
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._fault = f"{host}:{port}: it does not answer as Redis does ({error!r})"
        else:
            if found is not None:
                self.address = found
                return True
            self._fault = f"{host}:{port}: it knows none"
        finally:
            await one.disconnect(nowait=True)
        self._ask_last(node)
        return False

    def _of_service(self, answer: Any) -> _Address | None:
        """Return the master, unless this sentinel takes it for down."""
        said = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
        down = {"s_down", "o_down"} & set(said[b"flags"].decode().split(","))
        return None if down else (said[b"ip"].decode(), int(said[b"port"]))

    def _of_slot(self, answer: Any, node: _Address) -> _Address | None:
        """Return the master of the slot; note all nodes of the cluster."""
        told, master = [node], None
        for first, last, *members in answer:
            there = [((member[0] or b"").decode() or node[0], int(member[1])) for member in members]
            told += there
            if first <= self.slot <= last:
                master, self.replicas = there[0], len(there) - 1
        if master is not None:
            # Last those that REDIS_URL alone names: the same nodes, and the name of one that has gone takes long.
            self._nodes = list(dict.fromkeys((*told, *self._nodes)))[:_MOST_NODES]
        return master


class _ToNode(redis.asyncio.Connection):
    """A connection to a node, whose name is looked up for no longer than the connection may take."""

    def __init__(self, tls: Mapping[str, Any], **options: Any) -> None:
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
        if self._tls:
            arguments |= {"ssl": tls_context(self._tls), "server_hostname": self.host}
        return arguments


class _ToMaster(_ToNode):
    """A connection to whichever node is the master, and no longer than it is."""

    def __init__(self, master: Master, **options: Any) -> None:
        told = master.told
        super().__init__(told.tls, db=told.db, **told.credentials, **options)
        self._master = master

    async def _connect(self) -> None:
        self.host, self.port = await self._master.find()
        try:
            await super()._connect()
        except OSError:
            self._master.doubt((self.host, self.port))
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self.is_connected and self._master.address != (self.host, self.port):
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
            self._master.doubt((self.host, self.port))
            raise

    def _refused(self, error: redis.ResponseError) -> redis.ConnectionError | None:
        """Return what an error of the node means for the call: it was not made, and may be made again. None: else.

        ASK is never followed: a function would make a second copy of a key that is still to be moved.
        """
        if isinstance(error, exceptions.MovedError):  # first: it is a kind of AskError
            if error.slot_id != self._master.slot:
                return None  # a key without the hash tag: a fault of ours
            self._master.point((error.host or self.host, error.port))
            return redis.ConnectionError(f"MOVED {error}")
        code = "UNBLOCKED" if str(error).startswith("UNBLOCKED") else _REFUSALS.get(type(error))
        if code is None:
            return None
        self._master.doubt((self.host, self.port))
        return redis.ConnectionError(f"{code} {error}")


def client_of(told: MasterAddress, key: str, **options: Any) -> redis.asyncio.Redis:
    """Return a client that leads to the master, on a cluster that of `key`; `options` are of its connections."""
    pool = redis.asyncio.ConnectionPool(connection_class=_ToMaster, master=Master(told, key), **options)
    return redis.asyncio.Redis.from_pool(pool)


def master_of(client: redis.asyncio.Redis) -> Master | None:
    """Return the master that a client leads to; None for a client of one server."""
    master: Master | None = client.connection_pool.connection_kwargs.get("master")
    return master


async def _look_up(host: str, port: int, within_s: float) -> list[str]:
    """Return the addresses of a host, looked up in a thread of its own: name servers may hang for ten seconds.

    Raises:
        TimeoutError: that took longer than it may.
        OSError: it has no address.

    """

    def look() -> list[str]:
        try:
            return [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except UnicodeError:
            raise OSError(f"{host} is no name of a host") from None

    try:
        async with asyncio.timeout(within_s):
            return await in_thread("look-up", look)
    except TimeoutError:
        raise TimeoutError(f"the name {host} is not found within {within_s:g} s") from None


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context of all connections with these options, made anew when one of their files has changed.

    redis-py makes one for each connection, reading the CAs of the machine: 30 ms in which a worker stands still.

    Raises:
        OSError: a file cannot be read, or has no certificate or key.

    """
    files = (options.get(name) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"))
    written = tuple(Path(file).stat().st_mtime_ns for file in files if file)
    return _context(tuple(sorted(options.items())), written)


@lru_cache(maxsize=4)
def _context(options: tuple[tuple[str, Any], ...], _written: tuple[int, ...]) -> ssl.SSLContext:
    given = dict(options)
    context = ssl.create_default_context(cafile=given.get("ssl_ca_certs"))  # then no other CA counts
    context.check_hostname = given.get("ssl_check_hostname", True)
    if "ssl_certfile" in given:
        context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"))
    return context


async def has_replica(client: redis.asyncio.Redis) -> bool:
    """Tell whether the master that a client leads to has a replica.

    Where a Redis Cluster knows of none the master is asked: one that has just come back may take over, too.
    """
    if (master := master_of(client)) is not None:
        await master.find()
        if master.replicas > 0:
            return True
    replication: Any = await client.info("replication")
    # One that hangs, or has lost its power, is online there until `repl-timeout`, a minute by default: it has said
    # nothing for longer than any that follows, which says each second how far it is.
    return any(
        isinstance(value, dict) and value.get("state") == "online" and int(value.get("lag", 0)) <= _SILENT_S
        for name, value in replication.items()
        if name.startswith("slave")
    )


async def replicated(client: redis.asyncio.Redis, what: str, command: Sequence[Any]) -> Any:
    """Carry out a command; return the reply once a replica has what it wrote, if its master has any.

    Both go over one connection: WAIT counts what that wrote.

    Raises:
        redis.RedisError: none has confirmed `what` in time, among other things. What was written is written.

    """
    waits = await has_replica(client)
    async with client.pipeline(transaction=False) as pipe:
        pipe.execute_command(*command)
        if waits:
            pipe.execute_command("WAIT", 1, REPLICATED_MS)
        reply, *confirmed = await pipe.execute()
    if confirmed == [0]:
        raise redis.RedisError(f"WAIT: no replica has confirmed {what} within {REPLICATED_MS} ms")
    return reply
