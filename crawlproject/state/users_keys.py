"""The keys that operators write to on a Redis Cluster: without the hash tag, each in a slot of its own.

They are the one place for the whole crawl, spelled as on one Redis. The leader of a shard brings them into line
with the shard's own keys, which the functions read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import redis
from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import MovedError

from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.cluster import replicated, topology_of
from crawlproject.state.shards import shard_of
from crawlproject.state.tls import Encrypted

T = TypeVar("T")

SETS = ("halted", "temp_halted", "excluded")

TAKINGS = "\ntakings"  # in what is told of a set, how often commands have taken names out of it: no name

_PAGE = 500  # names a call
_PAGES = 4  # of each set that are looked through in one go
_ACTIVE = 1_000  # sources whose override is looked at each time: those with results lately,
_OTHERS = 500  # and as many of the others, in turn; of all shards together, but of each
_FEWEST = 32  # of both
_VALUE = 100  # bytes of a rate that are read
_TIMEOUT_S = 1.0  # for a node to answer
_AWAY_S = 5.0  # that a node which does not is left alone
_LONGEST_TABLE_S = 10.0  # until it is asked again who has which slot


class UsersSets:
    """The operators' sets, and that of one shard: what is in one and not in the other, three ways.

    Of the operators' halts the shard has those of its sources; what is excluded is excluded in all shards. A look
    goes through 2,000 names of each set at most, the next one goes on there.
    """

    def __init__(self, state: State) -> None:
        self._sets = [_UsersSet(state, which) for which in SETS]

    async def look(self, fence: int) -> bool:
        """Bring them into line; tell whether they were not.

        A set whose node does not answer keeps no other waiting.

        Raises:
            REDIS_TROUBLE: one failed; the others were looked at.

        """
        done = await asyncio.gather(*(one.look(fence) for one in self._sets), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error
        return True in done

    async def close(self) -> None:
        """Close all connections."""
        for one in self._sets:
            await one.client.aclose()


async def add_to_users_set(state: State, which: str, names: Sequence[str]) -> None:
    """On a Redis Cluster: have an operators' set show at once what a command adds to the shards'.

    Left to the leaders where the set's node does not answer.
    """
    if not state.is_shard:
        return
    key = getattr(state.keys, f"users_{which}")
    client = state.client_for(key)
    with suppress(*REDIS_TROUBLE):
        await _change(client, key, add=names)
    await client.aclose()


async def begin_taking(shard: State, which: str, names: Sequence[str]) -> None:
    """On a Redis Cluster: note that a command is about to take names out of a shard's set, and the operators'.

    Until `take_from_users_set` has ended, whatever a leader still finds in the operators' set it takes out.
    """
    if not (shard.is_shard and names):
        return
    async with shard.redis.pipeline(transaction=False) as pipe:
        pipe.hset(shard.keys.told_of + which, mapping=dict.fromkeys(map(_raw, names), b"taking"))
        await pipe.execute(raise_on_error=False)  # out of memory, the order itself matters more


async def take_from_users_set(shards: Iterable[State], which: str, names: Sequence[str]) -> None:
    """On a Redis Cluster: take names out of an operators' set, when a command has taken them out of the shards'.

    Left to the leaders where the set's node, or its replica, does not answer. Otherwise what operators add from
    now on counts at once.
    """
    there = list(shards)
    if not (there and there[0].is_shard and names):
        return
    key = getattr(there[0].keys, f"users_{which}")
    client = there[0].client_for(key)
    with suppress(*REDIS_TROUBLE):
        await _change(client, key, take=names)
        for shard in there:
            told = shard.keys.told_of + which
            async with shard.redis.pipeline() as pipe:
                pipe.hincrby(told, TAKINGS, 1)  # what a leader has read before is not true any more
                pipe.hdel(told, *map(_raw, names))
                await pipe.execute()
    await client.aclose()


async def _change(client: Redis, key: str, *, add: Sequence[str] = (), take: Sequence[str] = ()) -> None:
    """Change an operators' set; a replica has it then, if its master has any.

    Raises:
        REDIS_TROUBLE: its node does not answer, or no replica has it.

    """
    if not (add or take):
        return

    def write(pipe: Pipeline) -> None:
        if take:
            pipe.srem(key, *map(_raw, take))
        if add:
            pipe.sadd(key, *map(_raw, add))

    await replicated(client, f"a change of {key}", write)


class _UsersSet:
    """One of them."""

    def __init__(self, state: State, which: str) -> None:
        self._state = state
        self._which = which
        self._key = getattr(state.keys, f"users_{which}")
        self._own = getattr(state.keys, which)
        self.client: Redis = state.client_for(self._key)
        self._cursors = {"there": 0, "here": 0, "told": 0}

    async def look(self, fence: int) -> bool:
        theirs, ours = self.client, self._state.redis
        told = self._state.keys.told_of + self._which
        takings = await cast("Any", ours).hget(told, TAKINGS) or b""
        there, here, noted = await asyncio.gather(
            self._page("there", theirs.sscan, self._key),
            self._page("here", ours.sscan, self._own),
            self._page("told", ours.hscan, told),
        )
        noted.pop(TAKINGS, None)
        names = dict.fromkeys(filter(self._is_here, there), True)
        if others := [name for name in {*here, *noted} if name not in names]:
            found: Any = await theirs.smismember(self._key, [_raw(name) for name in others])
            names |= {name: member == 1 for name, member in zip(others, found, strict=True)}
        open_ones = [item for item in names.items() if not _is_settled(*item, here, noted)]
        for some in _pages(open_ones):
            is_there: dict[str, bool] = dict(some)
            kept: list[str] = []
            while is_there:
                changes = await self._state.scripts.mirror_set(fence, self._which, is_there, kept, takings)
                if changes is None:
                    return False
                kept, take = changes
                await _change(self.client, self._key, add=kept, take=take)
                is_there = {**dict.fromkeys(kept, True), **dict.fromkeys(take, False)}
        return bool(open_ones)

    def _is_here(self, name: str) -> bool:
        """Tell whether a name of the operators' set is one for this shard."""
        return self._which == "excluded" or shard_of(name, self._state.count) == self._state.number

    async def _page(self, what: str, scan: Any, key: str) -> dict[str, bytes]:
        """Read on in a set or a hash, from where the last look ended; all of it, if that is not much."""
        found: dict[str, bytes] = {}
        for _ in range(_PAGES):
            self._cursors[what], page = await scan(key, self._cursors[what], count=_PAGE)
            found |= {_text(name): page[name] if isinstance(page, dict) else b"" for name in page}
            if self._cursors[what] == 0:
                break
        return found


class UsersRates:
    """The operators' rates, one key a source, anywhere on the cluster: taken over for the sources of one shard."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values = ScatteredValues(state)
        self._prefix = state.keys.users_override_rate_of
        self._taken: dict[str, bytes] | None = None  # what was taken over, as far as this leader knows
        self._cursor = 0
        self._active = max(_ACTIVE // state.count, _FEWEST)
        self._others = max(_OTHERS // state.count, _FEWEST)

    def begin(self) -> None:
        """Begin a term: another may have taken over rates since."""
        self._taken = None

    async def look(self, fence: int) -> list[str]:
        """Take over what has changed, for the sources with an override or with results lately, and some others.

        Return the sources whose rates have.
        """
        shard: Any = self._state.redis
        keys = self._state.keys
        taken = self._taken
        if taken is None:
            stored = await shard.hgetall(keys.told_of + "override_rate")
            taken = self._taken = {_text(name): value for name, value in stored.items()}
        async with shard.pipeline(transaction=False) as pipe:
            pipe.zrevrange(keys.active, 0, self._active - 1)
            pipe.sscan(keys.sources, self._cursor, count=self._others)
            active, (self._cursor, others) = await pipe.execute()
        names = {_text(name) for name in (*active, *others)} | taken.keys()
        found = await self._values.read([self._prefix + name for name in names])
        changed = {
            name: value
            for name in names
            if (value := found.get(self._prefix + name)) is not None and value != taken.get(name, b"")
        }
        for some in _pages(changed.items()):
            if not await self._state.scripts.mirror_rates(fence, dict(some)):
                return []
            taken |= dict(some)
        if self._taken is not None:  # else another term has begun meanwhile
            self._taken = {name: value for name, value in taken.items() if value}
        return list(changed)

    async def close(self) -> None:
        """Close all connections."""
        await self._values.aclose()


async def write_users_rate(state: State, source: str, value: str | None) -> None:
    """On a Redis Cluster: write the operators' rate of a source, or delete it where `value` is None.

    Raises:
        REDIS_TROUBLE: its node does not answer.

    """
    if not state.is_shard:
        return
    async with aclosing(ScatteredValues(state)) as values:
        await values.write(state.keys.users_override_rate_of + source, value)


class _Range(NamedTuple):
    first: int
    last: int
    node: tuple[str, int]


class ScatteredValues:
    """Strings in any slots of a Redis Cluster: one pipeline for each node that has some."""

    def __init__(self, state: State) -> None:
        topology = topology_of(state.redis)
        if topology is None:
            raise ValueError("not on a Redis Cluster")
        self._known = list(topology.address.nodes)
        self._options: dict[str, Any] = {
            **topology.connection_options,
            "connection_class": Encrypted if topology.tls else Connection,
        }
        self._clients: dict[tuple[str, int], Redis] = {}
        self._away: dict[tuple[str, int], float] = {}  # nodes that do not answer, until when they are left alone
        self._table: list[_Range] = []
        self._asked_at = -_LONGEST_TABLE_S

    async def read(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of keys, b"" for none; a key is left out while its node does not answer."""
        found: dict[str, bytes] = {}

        async def ask(node: tuple[str, int], some: list[str]) -> None:
            for page in _pages(some):
                async with self._client(node).pipeline(transaction=False) as pipe:
                    for key in page:
                        pipe.getrange(_raw(key), 0, _VALUE - 1)
                    replies = await pipe.execute(raise_on_error=False)
                for key, reply in zip(page, replies, strict=True):
                    if isinstance(reply, bytes):
                        found[key] = reply
                    elif isinstance(reply, MovedError):
                        self._table = []
                    elif "WRONGTYPE" in str(reply):
                        found[key] = b""

        await self._each(keys, ask)
        return found

    async def write(self, key: str, value: str | None) -> None:
        """Write a value, or delete it where that is None.

        Raises:
            REDIS_TROUBLE: its node does not answer.

        """
        done = False

        async def ask(node: tuple[str, int], some: list[str]) -> None:
            nonlocal done
            client: Any = self._client(node)
            await (client.delete(_raw(key)) if value is None else client.set(_raw(key), value))
            done = True

        for _ in range(2):
            await self._each([key], ask)
            if done:
                return
            self._table = []
        raise redis.ConnectionError(f"the node of the Redis Cluster that has {key} does not answer")

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def _each(
        self, keys: Iterable[str], ask: Callable[[tuple[str, int], list[str]], Awaitable[None]]
    ) -> None:
        """Call `ask` for each node with the keys that it has, at the same time; nodes that fail are left alone."""
        now = time.monotonic()
        if not self._table or now > self._asked_at + _LONGEST_TABLE_S:
            await self._learn()
        by_node: dict[tuple[str, int], list[str]] = {}
        for key in keys:
            slot = key_slot(key.encode(errors="surrogateescape"))
            node = next((one.node for one in self._table if one.first <= slot <= one.last), None)
            if node is not None and self._away.get(node, 0.0) <= now:
                by_node.setdefault(node, []).append(key)

        async def tried(node: tuple[str, int], some: list[str]) -> None:
            try:
                await ask(node, some)
            except REDIS_TROUBLE:
                self._away[node] = time.monotonic() + _AWAY_S
                self._table = []

        await asyncio.gather(*(tried(*item) for item in by_node.items()))

    async def _learn(self) -> None:
        """Ask one node after the other who has which slots, until one answers."""
        now = time.monotonic()
        for node in sorted(self._known, key=lambda node: self._away.get(node, 0.0) > now):
            client: Any = self._client(node)
            try:
                slots = await client.execute_command("CLUSTER", "SLOTS")
            except REDIS_TROUBLE:
                self._away[node] = time.monotonic() + _AWAY_S
                continue
            ranges = [
                _Range(first, last, (_text(master[0] or b"") or node[0], master[1]))
                for first, last, master, *_ in slots
            ]
            if ranges:
                self._table, self._asked_at = ranges, time.monotonic()
                self._known = list(dict.fromkeys((*(one.node for one in ranges), *self._known)))
                return

    def _client(self, node: tuple[str, int]) -> Redis:
        if node not in self._clients:
            host, port = node
            pool = ConnectionPool(
                host=host,
                port=port,
                socket_connect_timeout=_TIMEOUT_S,
                socket_timeout=_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
                **self._options,
            )
            self._clients[node] = Redis.from_pool(pool)
        return self._clients[node]


def _is_settled(name: str, is_there: bool, here: Mapping[str, bytes], noted: Mapping[str, bytes]) -> bool:
    """Tell whether there is nothing to do for a name, as far as it was read."""
    return is_there and name in here and noted.get(name) == b"there"


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, _PAGE)):
        yield page


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _raw(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
