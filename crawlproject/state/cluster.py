"""A Redis Cluster: which node has the slot of a shard, and connections that lead there.

A shard is what lies in one slot of the cluster: all keys with one hash tag. Its client is redis-py's ordinary one;
only its connections know of the cluster, as those behind sentinels do of the master. redis-py's own cluster client
costs half as much CPU again, and keeps calls to nodes in health waiting for one that hangs.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, cast

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.crc import key_slot
from redis.retry import Retry as BlockingRetry

from crawlproject.config import ClusterAddress
from crawlproject.state.health import plain
from crawlproject.state.tls import BlockingEncrypted, Encrypted, Tls

FOLLOW_EVERY_S = 1.0  # how often nodes are asked whether another one has the slot by now

_ASK_TIMEOUT_S = 1.0  # for a node to answer, before the next is asked
_ASK_AGAIN_S = 0.2  # between two rounds while the slot has no node, or one that does not answer
_MOST_NODES = 1_000  # that a cluster should have
_SILENT_S = 5  # that a replica which follows may have said nothing

_Address = tuple[str, int]
_TROUBLE = (redis.RedisError, OSError, TimeoutError)


class SlotMoved(redis.ConnectionError):
    """The node does not have the slot any more, and has done nothing. The next connection leads to another one."""


class Owner(NamedTuple):
    """The node that has a slot."""

    address: _Address
    epoch: int  # of its claim to its slots: of two that claim the same one, the larger is right
    replicas: int  # those in health


class Topology:
    """Which nodes a cluster has, and which of them has each of some slots: what all clients of a process share.

    A node that was replaced, because it hung or was cut off, does not know until others tell it. So a claim to a
    slot is believed only if it is not older than the one believed before, or the node believed has said that it
    does not have the slot.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._nodes: list[_Address] = list(address.nodes)  # in the order in which they are asked
        random.shuffle(self._nodes)  # not all workers the same one
        self._told: frozenset[_Address] = frozenset()  # those that the cluster itself names
        self._slots: dict[int, Slot] = {}
        self._asking = asyncio.Lock()
        self.tls = Tls(address.tls) if address.tls else None
        self._options: dict[str, Any] = {
            **self.connection_options,
            "socket_connect_timeout": _ASK_TIMEOUT_S,
            "socket_timeout": _ASK_TIMEOUT_S,
        }

    @property
    def connection_options(self) -> dict[str, Any]:
        """The options of connections to the nodes, but their places and timeouts."""
        return {**self.address.credentials, **({"tls": self.tls} if self.tls else {})}

    def slot_of(self, key: str) -> Slot:
        """Return the slot of a key."""
        return self.slot(key_slot(key.encode()))

    def slot(self, number: int) -> Slot:
        """Return a slot by its number."""
        return self._slots.setdefault(number, Slot(self, number))

    def ask_last(self, address: _Address) -> None:
        """Ask the node at `address` after all others: it does not answer."""
        # A list of its own, as below: readers of several shards are threads.
        if address in (nodes := self._nodes):
            self._nodes = [*(node for node in nodes if node != address), address]

    def ask_first(self, address: _Address) -> None:
        """Ask the node at `address` before all others."""
        self._nodes = [address, *(node for node in self._nodes if node != address)]

    async def find(self, slot: Slot) -> None:
        """Ask who has `slot`, if that is in doubt."""
        if slot.is_due:  # else without the lock: nobody waits because another slot's node hangs
            async with self._asking:
                if slot.is_due:
                    await self._ask(self._nodes, slot)

    async def follow(self) -> None:
        """Ask each second whether other nodes have the slots by now. Never ends."""
        while True:
            await asyncio.sleep(FOLLOW_EVERY_S)
            with suppress(*_TROUBLE):  # nobody knows
                await self._ask(self._others())

    async def _ask(self, nodes: Iterable[_Address], wanted: Slot | None = None) -> None:
        """Ask one node after the other, until one knows who has the slot that is wanted; None: who has each."""
        kind = Encrypted if self.tls else redis.asyncio.Connection
        self._begin_asking(wanted)
        for host, port in tuple(nodes):
            one: Any = kind(host=host, port=port, retry=Retry(NoBackoff(), 0), **self._options)
            try:
                await one.connect()
                await one.send_command("CLUSTER", "SLOTS")
                slots = await one.read_response()
                await one.send_command("CLUSTER", "NODES")
                if self._learn((host, port), slots, await one.read_response(), wanted):
                    return
            except _TROUBLE as error:
                self._note_fault((host, port), error)
            finally:
                await one.disconnect(nowait=True)

    def find_blocking(self, slot: Slot) -> None:
        """Do what `find` does."""
        if slot.is_due:
            self._ask_blocking(self._nodes, slot)

    def follow_blocking(self) -> None:
        """Ask once what `follow` asks each second."""
        self._ask_blocking(self._others())

    def _ask_blocking(self, nodes: Iterable[_Address], wanted: Slot | None = None) -> None:
        """Do what `_ask` does."""
        kind = BlockingEncrypted if self.tls else redis.Connection
        self._begin_asking(wanted)
        for host, port in tuple(nodes):
            one: Any = kind(host=host, port=port, retry=BlockingRetry(NoBackoff(), 0), **self._options)
            try:
                _look_up(host, port)
                one.connect()
                one.send_command("CLUSTER", "SLOTS")
                slots = one.read_response()
                one.send_command("CLUSTER", "NODES")
                if self._learn((host, port), slots, one.read_response(), wanted):
                    return
            except _TROUBLE as error:
                self._note_fault((host, port), error)
            finally:
                one.disconnect()

    def _begin_asking(self, wanted: Slot | None) -> None:
        if wanted is not None:
            wanted.asked_at = time.monotonic()

    def _note_fault(self, asked: _Address, error: Exception) -> None:
        for slot in list(self._slots.values()):
            slot.fault = f"{asked[0]}:{asked[1]}: {plain(error)}"
            slot.doubt(asked)
        self.ask_last(asked)

    def _others(self) -> list[_Address]:
        """Return the nodes, in any order; first those that have none of the slots, as far as is known.

        Last those that REDIS_URL alone names: they are the same, and the name of one that has gone may take long.
        """
        owners = {slot.owner_address for slot in list(self._slots.values())}
        nodes, told = self._nodes, self._told
        return sorted(random.sample(nodes, len(nodes)), key=lambda node: (node not in told, node in owners))

    def _learn(self, asked: _Address, slots: Any, nodes: Any, wanted: Slot | None) -> bool:
        """Take a node's answers to CLUSTER SLOTS and CLUSTER NODES; tell whether it knows what is wanted."""
        epochs, addresses = _epochs(nodes), [asked]
        claims: dict[int, Owner] = {}
        for first, last, *members in slots:
            there = [(_text(member[0]) or asked[0], int(member[1])) for member in members]
            addresses += there
            claim = Owner(there[0], epochs.get(_text(members[0][2]), 0), len(there) - 1)
            claims |= {number: claim for number in list(self._slots) if first <= number <= last}
        self._told = frozenset(addresses[1:])
        self._nodes = list(dict.fromkeys((*addresses, *self._nodes)))[:_MOST_NODES]
        known = {number for number, slot in list(self._slots.items()) if slot.learn(asked, claims.get(number))}
        return len(known) == len(self._slots) if wanted is None else wanted.number in known


class Slot:
    """One slot of a cluster, and which node has it: what the connections of a client share."""

    def __init__(self, topology: Topology, number: int) -> None:
        self.topology = topology
        self.number = number
        self.asked_at = -_ASK_AGAIN_S
        self.fault = "none was asked"  # of the node asked last
        self._owner: Owner | None = None
        self._in_doubt = True

    @property
    def owner(self) -> Owner:
        """The node that has it, as far as is known.

        Raises:
            redis.ConnectionError: none is known.

        """
        if self._owner is None:
            raise redis.ConnectionError(f"no node of the Redis Cluster says who has the slot: {self.fault}")
        return self._owner

    @property
    def owner_address(self) -> _Address | None:
        """The address of that node, None if none is known."""
        return None if self._owner is None else self._owner.address

    @property
    def is_due(self) -> bool:
        """Whether to ask who has it: that is in doubt, and the last question was a while ago."""
        return self._in_doubt and time.monotonic() > self.asked_at + _ASK_AGAIN_S

    def was_left_by(self, address: _Address) -> bool:
        """Tell whether the node at `address` has it no longer, as far as is known."""
        return self.owner_address != address

    def doubt(self, address: _Address) -> None:
        """Ask before the next connection, if the node at `address`, which does not answer, has it or may have."""
        self._in_doubt |= self.owner_address in {None, address}

    def point(self, address: _Address) -> None:
        """Ask the node at `address` before the next connection: the one that had the slot says that it has it."""
        self.topology.ask_first(address)
        self._owner, self._in_doubt, self.asked_at = None, True, -_ASK_AGAIN_S

    def learn(self, asked: _Address, claim: Owner | None) -> bool:
        """Take what the node `asked` says of it; tell whether that says who has it."""
        if claim is None or (self._owner is not None and claim.epoch < self._owner.epoch):
            self.fault = f"{asked[0]}:{asked[1]}: nobody has it" if claim is None else "an old claim"
            return False
        self._owner, self._in_doubt = claim, False
        return True

    async def find(self) -> Owner:
        """Return the node that has it, having asked if that is in doubt.

        Raises:
            redis.ConnectionError: no node knows.

        """
        await self.topology.find(self)
        return self.owner

    def find_blocking(self) -> Owner:
        """Return what `find` returns."""
        self.topology.find_blocking(self)
        return self.owner


def _look_up(host: str, port: int) -> None:
    """Look a node's name up, for no longer than it may take to answer: name servers may hang for ten seconds.

    Raises:
        TimeoutError: that was not long enough.
        OSError: it has no address.

    """
    found: Future[Any] = Future()

    def look() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.set_exception(error)
        except UnicodeError:
            found.set_exception(OSError(f"{host} is no name of a host"))

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        found.result(_ASK_TIMEOUT_S)
    except TimeoutError:
        raise TimeoutError(f"the name {host} is not found within {_ASK_TIMEOUT_S:g} s") from None


def _epochs(nodes: Any) -> dict[str, int]:
    """Return the configuration epoch of each node by its id, from the lines of CLUSTER NODES."""
    lines = (line.split() for line in _text(nodes).splitlines())
    return {fields[0]: int(fields[6]) for fields in lines if len(fields) > 7}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


# Connections

# What a node answers, doing nothing, while the slot is moved or has no node; redis-py takes the code out.
_PAUSES = {
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
}


def _redirected(slot: Slot, host: str, error: redis.ResponseError) -> redis.ConnectionError | None:
    """Return what an error of a node means for the call: it was not made, and may be made again. None: else.

    ASK is never followed: a function would make a second copy of a key that is still to be moved.
    """
    if isinstance(error, exceptions.MovedError):  # first: it is a kind of AskError
        if error.slot_id != slot.number:
            return None  # a key without the hash tag: a fault of ours
        slot.point((error.host or host, error.port))
        return SlotMoved(f"MOVED {error}")
    if str(error).startswith("UNBLOCKED"):
        return SlotMoved(str(error))
    for kind, code in _PAUSES.items():
        if isinstance(error, kind):
            return redis.ConnectionError(f"{code} {error}")
    return None


class _ToOwner(redis.asyncio.Connection):
    """A connection to whichever node has the slot when it is made, and no longer than it has it."""

    def __init__(self, slot: Slot, **options: Any) -> None:
        super().__init__(**options)
        self._slot = slot

    async def _connect(self) -> None:
        self.host, self.port = (await self._slot.find()).address
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except (OSError, TimeoutError):
            self._distrust()
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self.is_connected and self._slot.was_left_by((self.host, self.port)):
            await self.disconnect(nowait=True)
            raise SlotMoved("the slot of the crawl has moved to another node")
        await super().send_packed_command(command, check_health)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except redis.ResponseError as error:
            redirected = _redirected(self._slot, self.host, error)
            if redirected is None:
                raise
            await self.disconnect(nowait=True)
            raise redirected from None
        except (redis.ConnectionError, redis.TimeoutError):
            self._distrust()
            raise

    def _distrust(self) -> None:
        self._slot.doubt((self.host, self.port))
        self._slot.topology.ask_last((self.host, self.port))


class _ToOwnerEncrypted(_ToOwner, Encrypted):
    """The same over TLS."""


class _BlockingToOwner(redis.Connection):
    """`_ToOwner` for commands."""

    def __init__(self, slot: Slot, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._slot = slot
        self._looked_at = time.monotonic()

    def _connect(self) -> Any:
        self.host, self.port = self._slot.find_blocking().address
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        except (OSError, TimeoutError):
            self._distrust()
            raise

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self._sock is not None:
            if time.monotonic() > self._looked_at + FOLLOW_EVERY_S:
                self._looked_at = time.monotonic()
                self._slot.topology.follow_blocking()
            if self._slot.was_left_by((self.host, self.port)):
                self.disconnect()
                raise SlotMoved("the slot of the crawl has moved to another node")
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except redis.ResponseError as error:
            redirected = _redirected(self._slot, self.host, error)
            if redirected is None:
                raise
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redirected from None
        except (redis.ConnectionError, redis.TimeoutError):
            self._distrust()
            raise

    def _distrust(self) -> None:
        self._slot.doubt((self.host, self.port))
        self._slot.topology.ask_last((self.host, self.port))


class _BlockingToOwnerEncrypted(_BlockingToOwner, BlockingEncrypted):
    """The same over TLS."""


# Clients


class ShardRedis(redis.asyncio.Redis):
    """A client for the keys of one slot."""

    @classmethod
    def to(cls, topology: Topology, key: str, **options: Any) -> ShardRedis:
        """Return a client for the keys in the slot of `key`; `options` are those of its connections."""
        pool = redis.asyncio.ConnectionPool(
            connection_class=_ToOwnerEncrypted if topology.tls else _ToOwner,
            slot=topology.slot_of(key),
            **topology.connection_options,
            **options,
        )
        return cast("ShardRedis", cls.from_pool(pool))

    @property
    def slot(self) -> Slot:
        """Its slot, and who has it."""
        slot: Slot = self.connection_pool.connection_kwargs["slot"]
        return slot


def blocking_shard(topology: Topology, key: str, **options: Any) -> redis.Redis:
    """Return a client for commands, for the keys in the slot of `key`; `options` are those of its connections.

    It repeats nothing but calls to a node that does not have the slot, and so has done nothing.
    """
    return _to_slot(topology.slot_of(key), **options)


def blocking_masters(client: redis.Redis, **options: Any) -> list[redis.Redis]:
    """Return clients for commands, one for each master that has slots, by what the node of `client` says.

    `client` is one of `blocking_shard`.
    """
    topology = topology_of(client)
    if topology is None:
        raise ValueError("not on a Redis Cluster")
    answer: Any = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    first_slots = {bytes(members[0][2]): int(first) for first, _, *members in answer}
    return [_to_slot(topology.slot(first), **options) for first in first_slots.values()]


def _to_slot(slot: Slot, **options: Any) -> redis.Redis:
    topology = slot.topology
    retry = BlockingRetry(ExponentialBackoff(cap=0.5, base=0.05), 3, supported_errors=(SlotMoved,))
    pool = redis.ConnectionPool(
        connection_class=_BlockingToOwnerEncrypted if topology.tls else _BlockingToOwner,
        slot=slot,
        **topology.connection_options,
        **options | {"retry": retry},
    )
    return redis.Redis.from_pool(pool)


def topology_of(client: Any) -> Topology | None:
    """Return the topology that a client shares; None unless it is on a Redis Cluster."""
    slot = client.connection_pool.connection_kwargs.get("slot")
    return slot.topology if isinstance(slot, Slot) else None


def has_replica(client: redis.Redis) -> bool:
    """Tell whether the master that a command's client leads to has a replica; False unless on a Redis Cluster.

    Where none is known the master is asked: one that has just come back may take over, too.
    """
    slot = client.connection_pool.connection_kwargs.get("slot")
    if not isinstance(slot, Slot):
        return False
    return slot.find_blocking().replicas > 0 or _has_online(client.info("replication"))


async def shard_has_replica(client: ShardRedis) -> bool:
    """Tell what `has_replica` tells."""
    if (await client.slot.find()).replicas > 0:
        return True
    info: Any = client.info("replication")
    return _has_online(await info)


def _has_online(replication: Any) -> bool:
    """Tell whether INFO replication has a replica that follows.

    One that hangs, or has lost its power, is online there until `repl-timeout`, a minute by default: it has said
    nothing for longer than any that follows, which says each second how far it is.
    """
    return any(
        isinstance(value, dict) and value.get("state") == "online" and int(value.get("lag", 0)) <= _SILENT_S
        for name, value in replication.items()
        if name.startswith("slave")
    )


def address_of(client: redis.Redis) -> tuple[str, int] | None:
    """Return where the node is that a command's client led to; None if unknown, or not on a Redis Cluster."""
    slot = client.connection_pool.connection_kwargs.get("slot")
    return slot.owner_address if isinstance(slot, Slot) else None


REPLICATED_MS = 1000  # for a replica to have what was written; less than a call may take


async def replicated(client: redis.asyncio.Redis, what: str, write: Callable[[Pipeline], object]) -> list[Any]:
    """Send what `write` puts into a pipeline; return the replies once a replica has it, if its master has any.

    All goes over one connection: WAIT counts what that wrote.

    Raises:
        redis.RedisError: none has confirmed `what` in time, among other things. What was written is written.

    """
    has_replica = isinstance(client, ShardRedis) and await shard_has_replica(client)
    async with client.pipeline(transaction=False) as pipe:
        write(pipe)
        if has_replica:
            pipe.execute_command("WAIT", 1, REPLICATED_MS)
        replies = list(await pipe.execute())
    if has_replica:
        check_replicated(what, replies.pop())
    return replies


def check_replicated(verb: str, confirmed: int) -> None:
    """Check what WAIT answered after a call.

    Raises:
        redis.RedisError: no replica has what the function wrote. It is written all the same.

    """
    if confirmed == 0:
        raise redis.RedisError(f"WAIT: no replica has confirmed {verb} within {REPLICATED_MS} ms")
