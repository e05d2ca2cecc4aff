"""Divides a crawl of one shard among several on a Redis Cluster, while nobody works on it.

All is copied, and nothing is taken away where it was. Until the last step the crawl is what it was: a division
that breaks off is begun anew, by the same command. Every key of `Keys` has its way here.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from redis.exceptions import OutOfMemoryError, ResponseError

from crawlproject.errors import CrawlprojectError, FrontierInUse
from crawlproject.state.client import REDIS_TROUBLE, BlockingState, without_secrets
from crawlproject.state.cluster import address_of, has_replica
from crawlproject.state.keys import DUE_SETS, Keys
from crawlproject.state.numbers import whole_number
from crawlproject.state.recount import COUNTED, Count, add, ask, escaped
from crawlproject.state.seen_before import part_namespace
from crawlproject.state.shards import HASH_VERSION, shard_of

T = TypeVar("T")

_EXAMPLES = 5  # of foreign keys
_PAGE = 500  # keys or entries that are copied at once
_FIELDS = 5_000  # the same of fields and members, which 16 shards may divide
_LONG_LIST = 1_000  # beyond it a list is copied in pieces, not as a whole
_WHOLE_HASH = 500_000  # the same of a hash: half a second of Redis
_PART_BYTES = 2**30  # of what the crawl has in Redis, for each part of its seen filter
_FEEDER_S = 15.0  # in which a process that feeds says so a few times
_SCANS = {"hash": "hscan_iter", "zset": "zscan_iter", "set": "sscan_iter"}
_ALIVE_EVERY_S = 2.0
_GONE_S = 20.0  # after which one that says nothing counts as gone
_REPLICA_S = 25  # that a replica may be behind at the end; less than a call may take


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What becomes of each key, by its name in Keys. What follows the prefix is a source: it goes to that one's shard.
OF_SOURCE = _names(
    """delayed_of found_hosts_of revisits_of override_rate_of circuit_of window_of robots_turn_of robots_delays_of
    statuses_of seconds_of incidents_of"""
)
OF_NUMBER_AND_SOURCE = _names("queue_of overflow_of extents_of requests_of")  # ..., `:`, source
# Fields or members are sources: each goes to its shard.
BY_SOURCE = _names(
    """spill_ready refill_ready revisits ledger slots paced turns rates options sources halted temp_halted
    watchlist counts_of counts_at_rest dead_sources active told_of"""
)
TO_ALL = _names(
    """limits hosts claims excluded excluded_by excluded_by_file clock spiders reader_of audit_told
    lease_sequence"""
)
TO_FIRST = _names("seeds totals latencies ended_sessions feed_of dropped_extents")
# Each entry goes to the shard of its source, and keeps its id.
STREAMS = _names(
    """image_events probe_events link_rot_events failed_events page_events halted_events resumed_events audit
    dead"""
)
SEEN = _names("seen_of seen_bloom_of seen_meta")  # to where all shards ask (seen_before.py)
ITS_OWN = _names("quarantine readers pack_folder")
# Counted or made anew, of nobody who is there, or not the shard's.
ANEW = _names(
    """outstanding overflow spilled packs dead_refusals places due_fast due_mid due_slow packs_dead spill_fault
    texts_of quarantine_turn workers resting leases_of processing_of dropped robots_of robots_stored robots_size
    robots_fetch_of pulse leader fence catalogue_readings paused data_fault ordered_by_of sample feeders carrier
    crossings outbox_of outbox_sequence seeds_received seeds_out seeds_sequence layout users_seeds users_halted
    users_temp_halted users_excluded users_override_rate_of"""
) | set(DUE_SETS)
# What a division, at its end too, reads as what it must be; the scripts that it begins with check others.
_MUST_BE = dict.fromkeys(STREAMS, "stream") | {
    "leader": "string",
    "seeds": "list",
    "dropped": "list",
    "feeders": "hash",
    "sources": "set",
}
_TYPES = dict.fromkeys(STREAMS, "stream") | {"quarantine": "list", "readers": "hash", "pack_folder": "string"}


# Before and after


def spiders_of(source: BlockingState, project: Sequence[str]) -> list[str]:
    """Return those spiders that have something in a crawl: of the project, and of all that have asked for work."""
    client, known = _redis(source), source.keys.spiders
    asked = client.zrange(known, 0, -1) if _text(client.type(known)) == "zset" else []
    names = dict.fromkeys((*project, *map(_text, asked)))
    frontiers = {name: replace(source.keys, spider=name) for name in names}
    return [
        name
        for name, keys in frontiers.items()
        if client.exists(keys.seeds, keys.outstanding, keys.totals, keys.seen_meta)
    ]


def check_at_rest(source: BlockingState, spiders: Iterable[str]) -> None:
    """Check that nobody leads a crawl, feeds it or reads its events. (Of workers recount.py knows.)

    Raises:
        FrontierInUse: somebody does.
        CrawlprojectError: a key was not written by crawlproject.

    """
    client, keys = _redis(source), source.keys
    spiders = list(spiders)
    for spider in spiders:
        for name, kind in _MUST_BE.items():
            _check_type(client, getattr(replace(keys, spider=spider), name), kind)
    if (leader := client.get(keys.leader)) is not None:
        raise FrontierInUse(
            f"{_text(leader)} leads the crawl, or did a moment ago: stop all workers and monitors, and run this "
            "again"
        )
    now = _now_us(client) / 1e6
    for spider in spiders:
        for feeder, report in client.hgetall(replace(keys, spider=spider).feeders).items():
            moment = whole_number(report.partition(b":")[0])
            if moment is not None and moment / 1e6 > now - _FEEDER_S:
                raise FrontierInUse(f"{_text(feeder)} feeds seeds: stop it, and run this again")
    for key in client.scan_iter(match=escaped(keys.reader_of) + "*", count=_PAGE):
        _check_type(client, _text(key), "hash")
        until = whole_number(client.hget(key, "until") or b"")
        if until is not None and until / 1e6 > now:
            name = _text(key[len(keys.reader_of) :])
            raise FrontierInUse(f"reader {name} is reading events: stop that process, and run this again")


def _check_type(client: Any, key: str, kind: str) -> None:
    there = _text(client.type(key))
    if there not in {kind, "none"}:
        raise CrawlprojectError(
            f"Redis holds data not written by crawlproject: {key} is a {there}, not a {kind}: remove or rename it"
        )


def memory_of(source: BlockingState) -> int:
    """Return how many bytes the Redis of a crawl uses, for all that is in it."""
    return int(_redis(source).info("memory")["used_memory"])


def fields_of_all(source: BlockingState) -> int:
    """Return how many fields each shard gets of what all have."""
    keys, client = source.keys, _redis(source)
    with client.pipeline(transaction=False) as pipe:
        for key in (keys.limits, keys.hosts, keys.claims):
            pipe.hlen(key)
        return sum(number for number in pipe.execute(raise_on_error=False) if isinstance(number, int))


def sources_of(source: BlockingState) -> int:
    """Return how many sources a crawl knows."""
    return int(_redis(source).scard(source.keys.sources))


def overrides_of(source: BlockingState) -> dict[str, str]:
    """Return the rates that operators have set, by source, as they are written."""
    client, prefix = _redis(source), source.keys.override_rate_of
    found = {}
    for page in _pages(client.scan_iter(match=escaped(prefix) + "*", count=_PAGE)):
        for key, value in zip(page, client.mget(page), strict=True):
            if value is not None:
                found[_text(key[len(prefix.encode()) :])] = _text(value)
    return found


def check_copied(source: BlockingState, target: BlockingState, spiders: Iterable[str]) -> None:
    """Check that the shards have as many requests, events and dead letters as there were.

    Raises:
        CrawlprojectError: they have not.

    """
    for spider in spiders:
        before, after = _amounts(source, spider), [_amounts(shard, spider) for shard in target.shards]
        for what, number in before.items():
            if (found := sum(one[what] for one in after)) != number:
                raise CrawlprojectError(
                    f"the shards have {found} {what} of {spider} and the crawl {number}: something changes one of "
                    "them. Run this again"
                )


def _amounts(state: BlockingState, spider: str) -> dict[str, int]:
    keys, client = replace(state.keys, spider=spider), _redis(state)
    outstanding, overflow = (
        whole_number(value or b"0") or 0 for value in client.mget(keys.outstanding, keys.overflow)
    )
    return {
        "requests": outstanding + overflow,
        "events": sum(client.xlen(stream) for stream in keys.streams),
        "dead letters": client.xlen(keys.dead),
        "seeds": client.llen(keys.seeds),
    }


class Layouts:
    """What is noted of a crawl where it is, and where its shards are; on one Redis Cluster both are the same key.

    While `dividing` is noted, nobody else starts there. `divider` is who does it, and says that it is `alive`
    every two seconds, from a thread: so a second one is refused beside it.
    """

    def __init__(self, source: BlockingState, target: BlockingState) -> None:
        here, there = (Keys(one.config.namespace, one.keys.spider).layout for one in (source, target))
        self._closes = [to_there := target.client_for(there)]
        to_here = source.redis
        if source.is_on_cluster:
            self._closes.append(to_here := source.client_for(here))
        self._here: tuple[Any, str] = (to_here, here)
        self._there: tuple[Any, str] = (to_there, there)
        self._count = target.count
        self._at = without_secrets(target.config.redis_url or "")
        self._crawl = target.keys.crawl
        self._me = secrets.token_hex(8)
        self._sure_at = 0.0  # the last time that nobody had taken it over
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="reshard", daemon=True)

    def check_undivided(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return what is noted in both places.

        Raises:
            CrawlprojectError: the crawl is divided already, or another one is there.

        """
        here, there = (client.hgetall(key) for client, key in (self._here, self._there))
        for noted in (there, here):
            if (shards := noted.get(b"shards")) is not None:
                at = _text(noted.get(b"at", b""))
                if noted is there and here.get(b"dividing") == shards:
                    self._end(self._here)  # it broke off just before that
                raise CrawlprojectError(
                    f"CRAWL_NAMESPACE={self._crawl} has {_text(shards)} shards{at and ', on ' + at}: a crawl is "
                    "divided once"
                )
        return here, there

    def begin(self) -> bool:
        """Note that a division begins; return whether one has broken off. What the shards have then is of that.

        Raises:
            FrontierInUse: another one is at work.
            CrawlprojectError: it is divided already, or something else is there.

        """
        here, there = self.check_undivided()
        for (client, _), noted in ((self._there, there), (self._here, here)):
            alive = whole_number(noted.get(b"alive", b""))
            if alive is not None and _now_us(client) - alive < _GONE_S * 1e6:
                raise FrontierInUse(
                    f"another scrapy reshard is at work on CRAWL_NAMESPACE={self._crawl}: wait for that, or, if "
                    f"it was killed, {_GONE_S:g} s, and run this again"
                )
        has_broken_off = b"dividing" in there
        try:
            for client, key in (self._there, self._here):
                noting = {"dividing": str(self._count), "divider": self._me, "alive": str(_now_us(client))}
                client.hset(key, mapping=noting)
        except BaseException:
            if not has_broken_off:
                self.give_up()
            raise
        self._sure_at = time.monotonic()
        self._thread.start()
        return has_broken_off

    def check(self) -> None:
        """Check that no other process has taken the division over, as this one hung.

        Raises:
            FrontierInUse: one has.

        """
        if time.monotonic() > self._sure_at + _GONE_S / 2:
            self._say_alive()

    def check_formats(self) -> None:
        """Check that the cluster takes what the crawl's Redis dumps: what is noted, which is the same in both.

        Raises:
            CrawlprojectError: it does not.

        """
        (source, here), (target, there) = self._here, self._there
        try:
            target.restore(there, 0, source.dump(here), replace=True)
        except ResponseError as error:
            if "payload version" not in str(error):
                raise
            versions = [client.info("server")["redis_version"] for client in (source, target)]
            raise CrawlprojectError(
                "the Redis of REDIS_URL is {} and the Redis Cluster {}, which does not read what that one dumps: "
                "it must not be older".format(*versions)
            ) from None

    @property
    def former(self) -> str:
        """The key, where the crawl is, that says that it is being divided."""
        return self._here[1]

    def give_up(self) -> None:
        """Note that nothing was begun."""
        self._take_out("dividing")

    def end(self) -> None:
        """Note that the crawl is in its shards.

        Raises:
            FrontierInUse: another process has taken the division over.

        """
        self._say_alive()
        self._end(self._there)
        self._end(self._here)

    def close(self) -> None:
        """Close the connections; where the division broke off, the next one need not wait."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._take_out()
        for client in self._closes:
            client.close()

    def _stay(self) -> None:
        while not self._closing.wait(_ALIVE_EVERY_S):
            with suppress(CrawlprojectError, *REDIS_TROUBLE):  # `check` raises them, too
                self._say_alive()

    def _say_alive(self) -> None:
        began = time.monotonic()
        for client, key in (self._there, self._here):
            if client.hget(key, "divider") != self._me.encode():
                raise FrontierInUse(
                    "another scrapy reshard has taken the division over, as this one was not heard of for "
                    f"{_GONE_S:g} s: leave it to that one"
                )
            client.hset(key, "alive", str(_now_us(client)))
        self._sure_at = began

    def _take_out(self, *others: str) -> None:
        """Take out what is noted of this process, and other fields with it.

        Where Redis fails, it runs out by itself, and what broke off is begun anew.
        """
        for client, key in (self._there, self._here):
            with suppress(*REDIS_TROUBLE):
                if client.hget(key, "divider") == self._me.encode():
                    client.hdel(key, "divider", "alive", *others)

    def _end(self, place: tuple[Any, str]) -> None:
        client, key = place
        noted = {"shards": str(self._count), "version": str(HASH_VERSION), "at": self._at}
        with client.pipeline() as pipe:
            pipe.hset(key, mapping=noted)
            pipe.hdel(key, "dividing", "divider", "alive")
            pipe.execute()


def check_cluster(source: BlockingState, target: BlockingState) -> None:
    """Check that a crawl on a Redis Cluster is to be divided there.

    What operators write there is in slots of its own, and a shard knows what it has taken over from that.

    Raises:
        CrawlprojectError: it is to be on another one.

    """
    if not source.is_on_cluster:
        return
    with closing(target.client_for(source.keys.namespace)) as there:
        source.redis.ping()
        there.ping()
        if source.address != address_of(there):
            raise CrawlprojectError(
                "--on is another Redis Cluster than that of REDIS_URL: a crawl on a Redis Cluster is divided "
                "there. Leave --on out; its shards can then move to other nodes"
            )


def check_clear(source: BlockingState, target: BlockingState) -> None:
    """Check that the shards have nothing, nor, if the crawl comes from elsewhere, one of one shard beside them.

    Raises:
        CrawlprojectError: they have.

    """
    for _, keys in _keys_there(target):
        _check_none(target, keys)
    if source.is_on_cluster:
        return
    namespace = f"{{{target.keys.crawl}}}"
    layout = Keys(namespace, target.keys.spider).layout.encode()
    with closing(target.client_for(namespace)) as beside:
        keys = beside.scan_iter(match=escaped(namespace) + ":*", count=_PAGE)
        _check_none(target, (key for key in keys if key != layout))


def _check_none(target: BlockingState, keys: Iterator[bytes]) -> None:
    if (key := next(keys, None)) is not None:
        raise CrawlprojectError(
            f"the Redis Cluster has data of CRAWL_NAMESPACE={target.keys.crawl} already, as {_text(key)}: "
            "take another one, or remove that"
        )


def clear(target: BlockingState) -> None:
    """Delete what a division that broke off has brought to the shards."""
    for client, keys in _keys_there(target):
        for page in _pages(keys):
            with client.pipeline(transaction=False) as pipe:
                for key in page:
                    pipe.unlink(key)
                pipe.execute()


def _keys_there(target: BlockingState) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """Yield the masters that have shards, each with the keys of any shard of the crawl that it has."""
    crawl = target.keys.crawl
    tag = re.compile(rb"\{%s:(before:)?\d+(\.\d+)?\}:" % re.escape(crawl.encode()))
    masters = {}
    for shard in target.shards:
        shard.redis.ping()
        masters[shard.address] = _redis(shard)
    for client in masters.values():
        found = client.scan_iter(match=escaped("{" + crawl) + ":*", count=_PAGE)
        yield client, filter(tag.match, found)


# The copy


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
        self._from = _redis(source)
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
            CrawlprojectError: a node is full, has evicted keys, or was replaced meanwhile, and may have lost some.

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
        if self._node_ids() != self._ids:
            raise CrawlprojectError(
                "a node of the Redis Cluster was replaced meanwhile, and may have lost what it got: run this again"
            )

    def _copy_all(self) -> None:
        for page in self._checked(self._scan()):
            groups: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
            for key in page:
                if (found := self._named(_text(key))) is not None:
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
        yield from self._from.scan_iter(match=escaped(self._source.keys.namespace) + ":*", count=_PAGE)

    def _checked(self, items: Iterable[T], size: int = _PAGE) -> Iterator[list[T]]:
        for page in _pages(items, size):
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
            self.folders += [_text(self._from.get(key)) for key in keys]
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
            if (there := _text(self._from.type(key))) == kind:
                found.append(key)
            elif there != "none":
                self._leave(_text(key))
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
        name = self._names.get(_text(key))
        if name is not None and name[0] == "seeds":
            return self._keys(name[1], shard).seeds.encode()
        return shard.keys.namespace.encode() + key[len(self._source.keys.namespace.encode()) :]

    # Keys of sources

    def _copy_of_sources(self, name: str, spider: str, keys: list[bytes]) -> None:
        """Copy keys whose names end with a source, each to the shard of that, and count what they hold."""
        frontier = self._keys(spider)
        prefix = getattr(frontier, name)
        rests = [_text(key[len(prefix.encode()) :]) for key in keys]
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
                whole.append((key, _redis(shard), self._key_in(shard, key)))
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
        there, client = self._key_in(shard, key), _redis(shard)
        client.delete(there)
        at = 0
        while items := self._from.lrange(key, at, at + _PAGE - 1):
            self._check()
            client.rpush(there, *items)
            at += len(items)

    # Keys of the whole crawl

    def _scatter(self, key: bytes, shards: Sequence[BlockingState], *, by_source: bool = False) -> None:
        """Copy a key to shards; `by_source`: of its fields or members, which are sources, each has its own."""
        kind, left = _text(self._from.type(key)), self._from.pttl(key)
        if kind == "hash" and not by_source and self._from.hlen(key) <= _WHOLE_HASH:
            payload = self._from.dump(key)
            for shard in shards if payload is not None else ():  # else its time has run out
                _redis(shard).restore(self._key_in(shard, key), 0, payload, replace=True)
        elif kind in _SCANS:
            for page in self._checked(getattr(self._from, _SCANS[kind])(key, count=_FIELDS), _FIELDS):
                for shard, some in self._shares(page, shards, by_source):
                    _add_to(_redis(shard), kind, self._key_in(shard, key), some)
        elif kind == "list":
            for shard in shards:
                self._copy_list(key, shard)
        elif kind == "string":
            value = self._from.get(key)
            for shard in shards if value is not None else ():
                _redis(shard).set(self._key_in(shard, key), value)
        elif kind != "none":
            self._leave(_text(key))
        if left > 0:
            for shard in shards:
                _redis(shard).pexpire(self._key_in(shard, key), left)

    def _shares(
        self, members: list[Any], shards: Sequence[BlockingState], by_source: bool
    ) -> Iterator[tuple[BlockingState, list[Any]]]:
        if by_source:
            yield from self._divided(members, lambda one: _text(one[0] if isinstance(one, tuple) else one))
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
        top = _text(self._from.xinfo_stream(key)["last-generated-id"])
        last: dict[int, str] = {}
        refusals: defaultdict[int, int] = defaultdict(int)
        after = "-"
        while entries := self._from.xrange(key, min=after, count=_PAGE):
            self._check()
            for shard, some in self._divided(entries, lambda entry: _source_in(entry[1])):
                with _redis(shard).pipeline(transaction=False) as pipe:
                    for at, fields in some:
                        pipe.xadd(self._key_in(shard, key), fields, id=at)
                    pipe.execute()
                last[shard.number] = _text(some[-1][0])
                refusals[shard.number] += sum(b"refusal" in fields for _, fields in some)
            after = "(" + _text(entries[-1][0])
            self.dead_letters += len(entries) if name == "dead" else 0
            self.events += len(entries) if name not in {"dead", "audit"} else 0
        for shard in self._shards:
            if name == "dead":
                if refusals[shard.number]:
                    _redis(shard).set(self._keys(spider, shard).dead_refusals, refusals[shard.number])
            elif last.get(shard.number) != top and top != "0-0":
                there = self._key_in(shard, key)
                with _redis(shard).pipeline() as pipe:
                    pipe.xadd(there, {"-": "-"}, id=top)
                    pipe.xdel(there, top)
                    pipe.execute()

    def _divide_quarantine(self, spider: str, key: bytes) -> None:
        """Divide a list whose items begin with a source and a newline."""
        for shard, some in self._divided(
            self._from.lrange(key, 0, -1), lambda item: _text(item.partition(b"\n")[0])
        ):
            _redis(shard).rpush(self._key_in(shard, key), *some)
            self.counts[spider, shard.number].quarantined += len(some)

    def _copy_readers(self, key: bytes) -> None:
        """Have each reader stand in all shards where it stands here."""
        for field, at in self._from.hgetall(key).items():
            reader, newline, stream = field.rpartition(b"\n")
            if newline and stream.startswith(self._source.keys.namespace.encode()):
                for shard in self._shards:
                    _redis(shard).hset(shard.keys.readers, reader + newline + self._key_in(shard, stream), at)

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
            with _redis(shard).pipeline(transaction=False) as pipe:
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
        clients = [*self._before, *((_redis(shard), shard.keys.namespace) for shard in self._shards)]
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
        """Return by which start of which server each shard is kept at present."""
        return [str(client.info("server")["run_id"]) for client in self._clients()]

    def _evictions(self) -> list[int]:
        """Return how many keys the node of each shard has evicted."""
        return [int(client.info("stats")["evicted_keys"]) for client in self._clients()]

    def _clients(self) -> list[Any]:
        return [*(client for client, _ in self._before), *map(_redis, self._shards)]


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
        return _text(fields.get(b"source", b""))
    try:
        source = json.loads(fields[b"event"]).get("source")
    except (ValueError, RecursionError, AttributeError):
        return ""
    return source if isinstance(source, str) else ""


def _pages(items: Iterable[T], size: int = _PAGE) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


def _redis(state: BlockingState) -> Any:
    return state.redis


def _now_us(client: Any) -> int:
    seconds, micros = client.time()
    return int(seconds * 1_000_000 + micros)


def _text(value: bytes | str) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
