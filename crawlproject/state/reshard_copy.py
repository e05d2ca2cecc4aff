"""Copies a crawl of one shard into several, key by key: each goes the way that reshard.py has for it."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from redis.exceptions import OutOfMemoryError

from crawlproject.errors import CrawlprojectError
from crawlproject.state.client import BlockingState
from crawlproject.state.cluster import has_replica
from crawlproject.state.keys import Keys
from crawlproject.state.recount import COUNTED, Count, add, ask, escaped
from crawlproject.state.reshard import (
    ANEW,
    BY_SOURCE,
    OF_NUMBER_AND_SOURCE,
    OF_SOURCE,
    PAGE,
    SEEN,
    STREAMS,
    TO_FIRST,
    client_of,
    memory_of,
    pages,
    text,
)
from crawlproject.state.seen_before import part_namespace
from crawlproject.state.shards import shard_of

T = TypeVar("T")

_EXAMPLES = 5  # of foreign keys
_FIELDS = 5_000  # fields or members that are copied at once, which 16 shards may divide
_LONG_LIST = 1_000  # beyond it a list is copied in pieces, not as a whole
_WHOLE_HASH = 500_000  # the same of a hash: half a second of Redis
_PART_BYTES = 2**30  # of what the crawl has in Redis, for each part of its seen filter
_SCANS = {"hash": "hscan_iter", "zset": "zscan_iter", "set": "sscan_iter"}
_REPLICA_S = 25  # that a replica may be behind at the end; less than a call may take
_TYPES = dict.fromkeys(STREAMS, "stream") | {"quarantine": "list", "readers": "hash", "pack_folder": "string"}


class Division:
    """Copies a crawl into shards that have nothing. Methods block, and raise what the clients raise.

    `target` is the first of the shards; `check` raises when it is no longer for this process to write. `left`
    counts the foreign keys in the namespace, and those of another type, `examples` names some; `folders`
    are those of the overflow store whose packs stay, `counts` what each frontier has of each shard, by spider and
    number.
    """

    def __init__(
        self,
        source: BlockingState,
        target: BlockingState,
        spiders: Sequence[str],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._check = check
        self._from = client_of(source)
        self._shards = target.shards
        self._spiders = spiders
        self.parts = min(target.count, 1 << (memory_of(source) // _PART_BYTES).bit_length())
        spaces = [part_namespace(target.keys.crawl, number, self.parts) for number in range(self.parts)]
        self._before: list[tuple[Any, str]] = [(target.client_for(space), space) for space in spaces]
        self._names: dict[str, tuple[str, str]] = {}  # of each key, and its spider
        self._prefixes: list[tuple[str, tuple[str, str]]] = []
        for spider in spiders or ["images"]:  # of a crawl that has not begun there may be what all share
            for name, key in self._keys(spider).items():
                if name.startswith("users_"):
                    continue  # spelled as the shard's own where that is not on a Redis Cluster
                if name.endswith("_of"):
                    self._prefixes.append((key, (name, spider)))
                else:
                    self._names[key] = (name, spider)
        self._prefixes.sort(key=lambda item: -len(item[0]))
        self._ids, self._evicted = self._node_ids(), self._evictions()
        self._done: set[bytes] = set()
        self.left = 0
        self.examples: list[str] = []
        self.folders: list[str] = []
        self.counts: defaultdict[tuple[str, int], Count] = defaultdict(Count)
        self.events = self.dead_letters = 0

    def copy(self) -> None:
        """Copy all of it.

        Raises:
            CrawlprojectError: a node is full, has evicted keys, or was replaced meanwhile, and may have lost some;
                or the Redis that the crawl comes from was replaced.

        """
        try:
            self._copy_all()
        except OutOfMemoryError as error:
            raise CrawlprojectError(
                "a node of the Redis Cluster is out of memory (maxmemory): its masters together need what the "
                f"crawl has now, {memory_of(self._source) / 1e6:.0f} MB, and some more"
            ) from error
        self._confirm()
        if self._evictions() != self._evicted:
            raise CrawlprojectError(
                "a node of the Redis Cluster has evicted keys: set its maxmemory-policy to noeviction, and its "
                "maxmemory higher, and run this again"
            )
        here, *there = self._ids
        here_now, *there_now = self._node_ids()
        if there_now != there:
            raise CrawlprojectError(
                "a node of the Redis Cluster was replaced meanwhile, and may have lost what it got: run this again"
            )
        if here_now != here:  # a scan does not go on there where it was
            raise CrawlprojectError(
                "the Redis of REDIS_URL was restarted or replaced meanwhile, and keys may be missing: run this "
                "again"
            )

    def _copy_all(self) -> None:
        for page in self._checked(self._scan()):
            groups: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
            for key in page:
                if (found := self._named(text(key))) is not None:
                    groups[found].append(key)
            for (name, spider), keys in groups.items():
                self._copy(name, spider, keys)
        for spider in self._spiders:
            self._begin_frontiers(spider)

    def close(self) -> None:
        """Close the connections that were made here."""
        for client, _ in self._before:
            client.close()

    def _keys(self, spider: str, shard: BlockingState | None = None) -> Keys:
        return replace((shard or self._source).keys, spider=spider)

    def _scan(self) -> Iterator[bytes]:
        """Yield each key of the crawl, perhaps more than once."""
        yield from (self._keys(spider).seeds.encode() for spider in self._spiders)
        yield from self._from.scan_iter(match=escaped(self._source.keys.namespace) + ":*", count=PAGE)

    def _checked(self, items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
        for page in pages(items, size):
            self._check()
            yield page

    def _named(self, key: str) -> tuple[str, str] | None:
        """Return which key it is: its name in Keys, and the spider that it is of, if it is of one."""
        found = self._names.get(key) or next((of for prefix, of in self._prefixes if key.startswith(prefix)), None)
        if found is None:
            self._leave(key)
        return found

    def _leave(self, key: str) -> None:
        self.left += 1
        if self.left <= _EXAMPLES:
            self.examples.append(key)

    def _copy(self, name: str, spider: str, keys: list[bytes]) -> None:
        """Copy keys of one name."""
        if name in COUNTED:
            keys = self._new(keys)
        if name in _TYPES:
            keys = self._of_type(_TYPES[name], keys)
        if name in OF_SOURCE or name in OF_NUMBER_AND_SOURCE:
            self._copy_of_sources(name, spider, keys)
        elif name in SEEN:
            self._copy_seen(name, keys)
        elif name == "pack_folder":
            self.folders += [text(self._from.get(key)) for key in keys]
        elif name not in ANEW:
            for key in keys:
                self._copy_of_crawl(name, spider, key)

    def _copy_of_crawl(self, name: str, spider: str, key: bytes) -> None:
        """Copy a key that says something of many sources."""
        if name in STREAMS:
            self._divide_stream(name, spider, key)
        elif name == "quarantine":
            self._divide_quarantine(spider, key)
        elif name == "readers":
            self._copy_readers(key)
        elif name in BY_SOURCE and not key.endswith(b":told:excluded"):
            self._scatter(key, self._shards, by_source=True)
        else:
            self._scatter(key, self._shards[:1] if name in TO_FIRST else self._shards)

    def _of_type(self, kind: str, keys: Iterable[bytes]) -> list[bytes]:
        """Return those that are of a type, each once."""
        found = []
        for key in self._new(keys):
            if (there := text(self._from.type(key))) == kind:
                found.append(key)
            elif there != "none":
                self._leave(text(key))
        return found

    def _new(self, keys: Iterable[bytes]) -> list[bytes]:
        """Return those that come for the first time: what is done to them must not be done again."""
        new = [key for key in dict.fromkeys(keys) if key not in self._done]
        self._done.update(new)
        return new

    def _shard_of(self, source: str) -> BlockingState:
        return self._shards[shard_of(source, len(self._shards))]

    def _key_in(self, shard: BlockingState, key: bytes) -> bytes:
        """Return what a key of the crawl is called in a shard."""
        name = self._names.get(text(key))
        if name is not None and name[0] == "seeds":
            return self._keys(name[1], shard).seeds.encode()
        return shard.keys.namespace.encode() + key[len(self._source.keys.namespace.encode()) :]

    # Keys of sources

    def _copy_of_sources(self, name: str, spider: str, keys: list[bytes]) -> None:
        """Copy keys whose names end with a source, each to the shard of that, and count what they hold."""
        frontier = self._keys(spider)
        prefix = getattr(frontier, name)
        rests = [text(key[len(prefix.encode()) :]) for key in keys]
        sources = [rest.partition(":")[2] if name in OF_NUMBER_AND_SOURCE else rest for rest in rests]
        shards = [self._shard_of(source) for source in sources]
        lengths: list[Any] = [0] * len(keys)
        if name in COUNTED:
            with self._from.pipeline(transaction=False) as pipe:
                for key in keys:
                    ask(pipe, COUNTED[name], key)
                lengths = pipe.execute(raise_on_error=False)
            for shard, rest, length in zip(shards, rests, lengths, strict=True):
                add(frontier, self.counts[spider, shard.number], prefix, rest, length)
        whole = []
        for key, shard, length in zip(keys, shards, lengths, strict=True):
            if COUNTED.get(name) == "llen" and isinstance(length, int) and length > _LONG_LIST:
                self._copy_list(key, shard)
            else:
                whole.append((key, client_of(shard), self._key_in(shard, key)))
        self._restore(whole)

    def _restore(self, keys: Sequence[tuple[bytes, Any, bytes]]) -> None:
        """Copy keys as Redis dumps them, with the time that they have left: each by a client, to a key there."""
        with self._from.pipeline(transaction=False) as pipe:
            for key, _, _ in keys:
                pipe.dump(key)
                pipe.pttl(key)
            dumped = pipe.execute()
        pipes: dict[int, Any] = {}
        for (_, client, key), payload, left in zip(keys, dumped[::2], dumped[1::2], strict=True):
            if payload is not None and left != 0:  # else its time has run out
                pipe = pipes.setdefault(id(client), client.pipeline(transaction=False))
                pipe.restore(key, max(left, 0), payload, replace=True)
        for pipe in pipes.values():
            pipe.execute()

    def _copy_list(self, key: bytes, shard: BlockingState) -> None:
        there, client = self._key_in(shard, key), client_of(shard)
        client.delete(there)
        at = 0
        while items := self._from.lrange(key, at, at + PAGE - 1):
            self._check()
            client.rpush(there, *items)
            at += len(items)

    # Keys of the whole crawl

    def _scatter(self, key: bytes, shards: Sequence[BlockingState], *, by_source: bool = False) -> None:
        """Copy a key to shards; `by_source`: of its fields or members, which are sources, each has its own."""
        kind, left = text(self._from.type(key)), self._from.pttl(key)
        if kind == "hash" and not by_source and self._from.hlen(key) <= _WHOLE_HASH:
            payload = self._from.dump(key)
            for shard in shards if payload is not None else ():  # else its time has run out
                client_of(shard).restore(self._key_in(shard, key), 0, payload, replace=True)
        elif kind in _SCANS:
            for page in self._checked(getattr(self._from, _SCANS[kind])(key, count=_FIELDS), _FIELDS):
                for shard, some in self._shares(page, shards, by_source):
                    _add_to(client_of(shard), kind, self._key_in(shard, key), some)
        elif kind == "list":
            for shard in shards:
                self._copy_list(key, shard)
        elif kind == "string":
            value = self._from.get(key)
            for shard in shards if value is not None else ():
                client_of(shard).set(self._key_in(shard, key), value)
        elif kind != "none":
            self._leave(text(key))
        if left > 0:
            for shard in shards:
                client_of(shard).pexpire(self._key_in(shard, key), left)

    def _shares(
        self, members: list[Any], shards: Sequence[BlockingState], by_source: bool
    ) -> Iterator[tuple[BlockingState, list[Any]]]:
        if by_source:
            yield from self._divided(members, lambda one: text(one[0] if isinstance(one, tuple) else one))
        else:
            yield from ((shard, members) for shard in shards)

    def _divided(
        self, items: Iterable[T], source_of: Callable[[T], str]
    ) -> Iterator[tuple[BlockingState, list[T]]]:
        found: defaultdict[int, list[T]] = defaultdict(list)
        for item in items:
            found[self._shard_of(source_of(item)).number].append(item)
        for number, some in found.items():
            yield self._shards[number], some

    def _divide_stream(self, name: str, spider: str, key: bytes) -> None:
        """Copy the entries of a stream to the shards of their sources, with their ids.

        The last id is that of all shards: what comes next in any is behind what a reader has read here.
        """
        top = text(self._from.xinfo_stream(key)["last-generated-id"])
        last: dict[int, str] = {}
        refusals: defaultdict[int, int] = defaultdict(int)
        after = "-"
        while entries := self._from.xrange(key, min=after, count=PAGE):
            self._check()
            for shard, some in self._divided(entries, lambda entry: _source_in(entry[1])):
                with client_of(shard).pipeline(transaction=False) as pipe:
                    for at, fields in some:
                        pipe.xadd(self._key_in(shard, key), fields, id=at)
                    pipe.execute()
                last[shard.number] = text(some[-1][0])
                refusals[shard.number] += sum(b"refusal" in fields for _, fields in some)
            after = "(" + text(entries[-1][0])
            self.dead_letters += len(entries) if name == "dead" else 0
            self.events += len(entries) if name not in {"dead", "audit"} else 0
        for shard in self._shards:
            if name == "dead":
                if refusals[shard.number]:
                    client_of(shard).set(self._keys(spider, shard).dead_refusals, refusals[shard.number])
            elif last.get(shard.number) != top and top != "0-0":
                there = self._key_in(shard, key)
                with client_of(shard).pipeline() as pipe:
                    # Without a deleted entry: a reader would take it for an event that it lacks.
                    pipe.xgroup_create(there, "-", mkstream=True)
                    pipe.xgroup_destroy(there, "-")
                    pipe.execute_command("XSETID", there, top)
                    pipe.execute()

    def _divide_quarantine(self, spider: str, key: bytes) -> None:
        """Divide a list whose items begin with a source and a newline."""
        for shard, some in self._divided(
            self._from.lrange(key, 0, -1), lambda item: text(item.partition(b"\n")[0])
        ):
            client_of(shard).rpush(self._key_in(shard, key), *some)
            self.counts[spider, shard.number].quarantined += len(some)

    def _copy_readers(self, key: bytes) -> None:
        """Have each reader stand in all shards where it stands here."""
        for field, at in self._from.hgetall(key).items():
            reader, newline, stream = field.rpartition(b"\n")
            if newline and stream.startswith(self._source.keys.namespace.encode()):
                for shard in self._shards:
                    client_of(shard).hset(shard.keys.readers, reader + newline + self._key_in(shard, stream), at)

    # The seen filter

    def _copy_seen(self, name: str, keys: list[bytes]) -> None:
        """Copy keys of the seen filter to where all shards ask; to all parts what says how to read it."""
        namespace = len(self._source.keys.namespace.encode())
        found = []
        for key in keys:
            numbers = range(self.parts) if name == "seen_meta" else (zlib.crc32(key) % self.parts,)
            found += [
                (key, client, space.encode() + key[namespace:])
                for client, space in (self._before[number] for number in numbers)
            ]
        self._restore(found)

    def _begin_frontiers(self, spider: str) -> None:
        """Begin the seen filters of the shards, which say that there is one of before; set their counts."""
        for shard in self._shards:
            keys, count = self._keys(spider, shard), self.counts[spider, shard.number]
            bounds = shard.config.of_shard
            with client_of(shard).pipeline(transaction=False) as pipe:
                begun = {"exact": str(bounds.seen_capacity), "exact_count": "0", "before": str(self.parts)}
                pipe.hset(keys.seen_meta, mapping=begun)
                pipe.set(keys.outstanding, count.outstanding)
                pipe.set(keys.overflow, count.overflow)
                pipe.set(keys.spilled, count.spilled)
                if count.packs:
                    pipe.hset(keys.packs, mapping=dict(count.packs))
                pipe.execute()

    # The end

    def _confirm(self) -> None:
        """Wait until a replica has what was written, where there is one.

        Raises:
            CrawlprojectError: it has not.

        """
        clients = [*self._before, *((client_of(shard), shard.keys.namespace) for shard in self._shards)]
        for client, namespace in clients:
            if not has_replica(client):
                continue
            with client.pipeline(transaction=False) as pipe:  # one connection: WAIT looks at what that did last
                pipe.ping()
                pipe.execute_command("WAIT", 1, _REPLICA_S * 1000)
                if not pipe.execute()[1]:
                    raise CrawlprojectError(
                        f"the replica of the node that has {namespace} is more than {_REPLICA_S} s behind: run "
                        "this again"
                    )

    def _node_ids(self) -> list[str]:
        """Return by which start of which server the crawl and each shard are kept at present."""
        return [str(client.info("server")["run_id"]) for client in (self._from, *self._clients())]

    def _evictions(self) -> list[int]:
        """Return how many keys the node of each shard has evicted."""
        return [int(client.info("stats")["evicted_keys"]) for client in self._clients()]

    def _clients(self) -> list[Any]:
        return [*(client for client, _ in self._before), *map(client_of, self._shards)]


def _add_to(client: Any, kind: str, key: bytes, members: list[Any]) -> None:
    """Add fields with values, members with scores, or members."""
    if kind == "hash":
        client.hset(key, mapping=dict(members))
    elif kind == "zset":
        client.zadd(key, dict(members))
    else:
        client.sadd(key, *members)


def _source_in(fields: Mapping[bytes, bytes]) -> str:
    """Return the source of an entry of a stream, "" if it does not say."""
    if b"event" not in fields:
        return text(fields.get(b"source", b""))
    try:
        source = json.loads(fields[b"event"]).get("source")
    except (ValueError, RecursionError, AttributeError):
        return ""
    return source if isinstance(source, str) else ""
