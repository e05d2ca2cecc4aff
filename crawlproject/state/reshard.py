"""The division of a crawl of one shard among several on a Redis Cluster, while nobody works on it.

All is copied (reshard_copy.py), and nothing is taken away where it was. Until the last step the crawl is what it
was: a division that breaks off is begun anew, by the same command. Every key of `Keys` has its way here.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from crawlproject.errors import CrawlprojectError, FrontierInUse
from crawlproject.state.client import REDIS_TROUBLE, BlockingState, without_secrets
from crawlproject.state.cluster import address_of
from crawlproject.state.keys import DUE_SETS, Keys
from crawlproject.state.numbers import whole_number
from crawlproject.state.recount import COUNTED, Count, add, ask, escaped
from crawlproject.state.shards import HASH_VERSION

T = TypeVar("T")

PAGE = 500  # keys or entries at once
_FEEDER_S = 15.0  # in which a process that feeds says so a few times
_ALIVE_EVERY_S = 2.0
_GONE_S = 20.0  # after which one that says nothing counts as gone


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


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
    """outstanding overflow spilled packs dead_refusals places packs_dead spill_fault
    texts_of quarantine_turn workers resting leases_of processing_of dropped robots_of robots_stored robots_size
    robots_fetch_of pulse leader fence catalogue_readings paused ordered_by_of sample feeders carrier
    crossings outbox_of outbox_sequence seeds_received seeds_out seeds_sequence layout users_seeds users_halted
    users_temp_halted users_excluded users_override_rate_of worker_settings"""
) | set(DUE_SETS)
# What a division, at its end too, reads as what it must be.
_MUST_BE = dict.fromkeys(STREAMS, "stream") | {
    "leader": "string",
    "seeds": "list",
    "dropped": "list",
    "feeders": "hash",
    "sources": "set",
}


_NOT_GIVEN_UP = "that division has ended, and workers may have crawled there since. Nothing was taken away"
_CHANGED = "something changes one of them, or takes keys away. Run this again"


# Before and after


def spiders_of(source: BlockingState, project: Sequence[str]) -> list[str]:
    """Return those spiders that have something in a crawl: of the project, and of all that have asked for work."""
    client, known = client_of(source), source.keys.spiders
    asked = client.zrange(known, 0, -1) if text(client.type(known)) == "zset" else []
    names = dict.fromkeys((*project, *map(text, asked)))
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
    client, keys = client_of(source), source.keys
    spiders = list(spiders)
    for spider in spiders:
        for name, kind in _MUST_BE.items():
            _check_type(client, getattr(replace(keys, spider=spider), name), kind)
    if (leader := client.get(keys.leader)) is not None:
        raise FrontierInUse(
            f"{text(leader)} leads the crawl, or did a moment ago: stop all workers and monitors, and run this "
            "again"
        )
    now = _now_us(client) / 1e6
    for spider in spiders:
        for feeder, report in client.hgetall(replace(keys, spider=spider).feeders).items():
            moment = whole_number(report.partition(b":")[0])
            if moment is not None and moment / 1e6 > now - _FEEDER_S:
                raise FrontierInUse(f"{text(feeder)} feeds seeds: stop it, and run this again")
    for key in client.scan_iter(match=escaped(keys.reader_of) + "*", count=PAGE):
        _check_type(client, text(key), "hash")
        until = whole_number(client.hget(key, "until") or b"")
        if until is not None and until / 1e6 > now:
            name = text(key[len(keys.reader_of) :])
            raise FrontierInUse(f"reader {name} is reading events: stop that process, and run this again")


def _check_type(client: Any, key: str, kind: str) -> None:
    there = text(client.type(key))
    if there not in {kind, "none"}:
        raise CrawlprojectError(
            f"Redis holds data not written by crawlproject: {key} is a {there}, not a {kind}: remove or rename it"
        )


def memory_of(source: BlockingState) -> int:
    """Return how many bytes the Redis of a crawl uses, for all that is in it."""
    return int(client_of(source).info("memory")["used_memory"])


def fields_of_all(source: BlockingState) -> int:
    """Return how many fields each shard gets of what all have."""
    keys, client = source.keys, client_of(source)
    with client.pipeline(transaction=False) as pipe:
        for key in (keys.limits, keys.hosts, keys.claims):
            pipe.hlen(key)
        return sum(number for number in pipe.execute(raise_on_error=False) if isinstance(number, int))


def sources_of(source: BlockingState) -> int:
    """Return how many sources a crawl knows."""
    return int(client_of(source).scard(source.keys.sources))


def seeds_of(source: BlockingState, spiders: Iterable[str]) -> int:
    """Return how many seeds wait in a crawl's own lists."""
    return sum(int(client_of(source).llen(replace(source.keys, spider=spider).seeds)) for spider in spiders)


def overrides_of(source: BlockingState) -> dict[str, str]:
    """Return the rates that operators have set, by source, as they are written."""
    client, prefix = client_of(source), source.keys.override_rate_of
    found = {}
    for page in pages(client.scan_iter(match=escaped(prefix) + "*", count=PAGE)):
        for key, value in zip(page, client.mget(page), strict=True):
            if value is not None:
                found[text(key[len(prefix.encode()) :])] = text(value)
    return found


def check_copied(source: BlockingState, target: BlockingState, spiders: Iterable[str]) -> None:
    """Check that what there was lies in the shards, and that they count it right.

    There requests, and the keys of the seen filter of before, are counted one by one; where the crawl was, this
    was done before it was copied (recount.py).

    Raises:
        CrawlprojectError: it does not, or they do not.

    """
    spiders = list(spiders)
    lies, seen = _counted(target, spiders)
    for spider in spiders:
        before, after = _amounts(source, spider), [_amounts(shard, spider) for shard in target.shards]
        for number, amounts in enumerate(after):
            count = lies[spider, number]
            if (counted := amounts["requests"]) != (there := count.outstanding + count.overflow):
                raise CrawlprojectError(
                    f"shard {number} has {there} requests of {spider} and counts {counted}: {_CHANGED}"
                )
        totals = {what: sum(one[what] for one in after) for what in before}
        before["keys of the seen filter"] = _seen_keys(source, spider)
        totals["keys of the seen filter"] = seen[spider]
        for what, amount in before.items():
            if (found := totals[what]) != amount:
                raise CrawlprojectError(
                    f"the shards have {found} {what} of {spider} and the crawl {amount}: {_CHANGED}"
                )


def _amounts(state: BlockingState, spider: str) -> dict[str, int]:
    keys, client = replace(state.keys, spider=spider), client_of(state)
    outstanding, overflow = (
        whole_number(value or b"0") or 0 for value in client.mget(keys.outstanding, keys.overflow)
    )
    return {
        "requests": outstanding + overflow,
        "events": sum(client.xlen(stream) for stream in keys.streams),
        "dead letters": client.xlen(keys.dead),
        "seeds": client.llen(keys.seeds),
    }


def _counted(
    target: BlockingState, spiders: Sequence[str]
) -> tuple[defaultdict[tuple[str, int], Count], Counter[str]]:
    """Count what lies in the shards: requests by spider and shard, and of the filter of before keys by spider."""
    counts: defaultdict[tuple[str, int], Count] = defaultdict(Count)
    seen: Counter[str] = Counter()
    ways: defaultdict[str, list[tuple[str, str, Keys, int]]] = defaultdict(list)  # by namespace
    for spider in spiders:
        for shard in target.shards:
            keys = replace(shard.keys, spider=spider)
            prefixes = {getattr(keys, name): command for name, command in COUNTED.items()} | {
                keys.quarantine: "llen"
            }
            ways[keys.namespace] += [(prefix, command, keys, shard.number) for prefix, command in prefixes.items()]
    filters = [(rest, spider) for spider in spiders for rest in _seen_prefixes("", spider)]
    for client, found in _keys_in_shards(target):
        for page in pages(dict.fromkeys(found)):
            asked = []
            with client.pipeline(transaction=False) as pipe:
                for key in page:
                    namespace, brace, rest = text(key).partition("}")
                    if namespace.startswith(f"{{{target.keys.crawl}:before:"):
                        seen.update(spider for prefix, spider in filters if rest.startswith(prefix))
                    for prefix, command, keys, number in ways[namespace + brace]:
                        if (whole := text(key)).startswith(prefix):
                            ask(pipe, command, key)
                            asked.append((counts[keys.spider, number], keys, prefix, whole[len(prefix) :]))
                            break
                replies = pipe.execute(raise_on_error=False)
            for (count, keys, prefix, rest), reply in zip(asked, replies, strict=True):
                if prefix == keys.quarantine:
                    count.quarantined += reply if isinstance(reply, int) else 0
                else:
                    add(keys, count, prefix, rest, reply)
    return counts, seen


def _seen_keys(source: BlockingState, spider: str) -> int:
    found: set[bytes] = set()
    for prefix in _seen_prefixes(source.keys.namespace, spider):
        found.update(client_of(source).scan_iter(match=escaped(prefix) + "*", count=PAGE))
    return len(found)


def _seen_prefixes(namespace: str, spider: str) -> tuple[str, str]:
    keys = Keys(namespace, spider)
    return keys.seen_of, keys.seen_bloom_of


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

    def check_undivided(
        self, else_: str = "a crawl is divided once"
    ) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return what is noted in both places; `else_` is for people.

        Raises:
            CrawlprojectError: the crawl is divided already, or another one is there.

        """
        here, there = (client.hgetall(key) for client, key in (self._here, self._there))
        for noted in (there, here):
            if (shards := noted.get(b"shards")) is not None:
                if noted is there and here.get(b"dividing") == shards:
                    self._end(self._here)  # it broke off just before that
                raise _has_ended(self._crawl, shards, noted.get(b"at", b""), else_)
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
                self.withdraw()
            raise
        self._sure_at = time.monotonic()
        self._thread.start()
        return has_broken_off

    def check_unfinished(self) -> None:
        """Check that a division has begun in both places, and has not ended.

        Raises:
            CrawlprojectError: so it is not.

        """
        here, there = self.check_undivided(_NOT_GIVEN_UP)
        if b"dividing" not in here:
            raise _nothing_begun(self._crawl)
        if b"dividing" not in there:
            raise CrawlprojectError(
                f"the Redis Cluster at {self._at} knows of no division of CRAWL_NAMESPACE={self._crawl}: name in "
                f"--on the one that it was to go to; if that is gone, or empty, delete {self._here[1]} in the "
                "Redis of REDIS_URL"
            )

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
            here_is, there_is = (_product(client.info("server")) for client in (source, target))
            raise CrawlprojectError(
                f"what REDIS_URL leads to is {here_is}, and the cluster is {there_is}, which does not read what "
                "that one dumps: take one of the same kind that is not older"
            ) from None

    def withdraw(self) -> None:
        """Note that nothing was begun."""
        self._take_out("dividing")

    def give_up(self) -> None:
        """Note that the division is given up, once the shards have nothing of it.

        Where this breaks off between the two notes the crawl goes on, and the next division begins anew.

        Raises:
            FrontierInUse: another process has taken the division over.

        """
        self._say_alive()
        for client, key in (self._here, self._there):
            client.hdel(key, "dividing")

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
            with suppress(*REDIS_TROUBLE):  # before long `check` raises them, too
                try:
                    self._say_alive()
                except FrontierInUse:
                    self._sure_at = -math.inf  # `check` raises it at once

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
    for _, keys in _keys_in_shards(target):
        _check_none(target, keys)
    if source.is_on_cluster:
        return
    namespace = f"{{{target.keys.crawl}}}"
    layout = Keys(namespace, target.keys.spider).layout.encode()
    with closing(target.client_for(namespace)) as beside:
        keys = beside.scan_iter(match=escaped(namespace) + ":*", count=PAGE)
        _check_none(target, (key for key in keys if key != layout))


def _check_none(target: BlockingState, keys: Iterator[bytes]) -> None:
    if (key := next(keys, None)) is not None:
        raise CrawlprojectError(
            f"the Redis Cluster has data of CRAWL_NAMESPACE={target.keys.crawl} already, as {text(key)}: "
            "take another one, or remove that"
        )


def begun(source: BlockingState) -> int:
    """Return into how many shards a crawl is being divided.

    Raises:
        CrawlprojectError: it is not.

    """
    dividing, shards, at = client_of(source).hmget(source.keys.layout, "dividing", "shards", "at")
    if shards is not None:
        raise _has_ended(source.keys.crawl, shards, at or b"", _NOT_GIVEN_UP)
    number = whole_number(dividing or b"")
    if number is None:
        raise _nothing_begun(source.keys.crawl)
    return number


def _has_ended(crawl: str, shards: bytes, at: bytes, else_: str) -> CrawlprojectError:
    where = f", on {text(at)}" if at else ""
    return CrawlprojectError(f"CRAWL_NAMESPACE={crawl} has {text(shards)} shards{where}: {else_}")


def _nothing_begun(crawl: str) -> CrawlprojectError:
    return CrawlprojectError(f"no division of CRAWL_NAMESPACE={crawl} has broken off: there is nothing to give up")


def noted_rates(target: BlockingState) -> dict[str, str]:
    """Return the rates that a division which broke off has written for operators: as many as have their note."""
    told = Keys("", target.keys.spider).told_of + "override_rate"
    found: dict[str, str] = {}
    for client, keys in _keys_in_shards(target):
        for key in keys:
            if key.partition(b"}")[2] == told.encode() and client.type(key) == b"hash":
                found |= {text(source): text(value) for source, value in client.hgetall(key).items()}
    return found


def clear(target: BlockingState, check: Callable[[], None]) -> int:
    """Delete what a division that broke off has brought to the shards, however many they were to be.

    Return how many keys that was. `check` raises when they are no longer for this process to delete.
    """
    deleted = 0
    for client, keys in _keys_in_shards(target):
        for page in pages(keys):
            check()
            with client.pipeline(transaction=False) as pipe:
                for key in page:
                    pipe.unlink(key)
                deleted += sum(pipe.execute())
    return deleted


def _keys_in_shards(target: BlockingState) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """Yield the masters, each with the keys of any shard of the crawl that it has, and of its filter of before."""
    crawl = target.keys.crawl
    tag = re.compile(rb"\{%s:(before:)?\d+(\.\d+)?\}:" % re.escape(crawl.encode()))
    for master in target.masters():
        client: Any = master
        with closing(master):
            found = client.scan_iter(match=escaped("{" + crawl) + ":*", count=PAGE)
            yield client, filter(tag.match, found)


def _product(info: Mapping[str, Any]) -> str:
    """Return name and version of a server; Valkey's `redis_version` is that of the Redis which it is like."""
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"


def _now_us(client: Any) -> int:
    seconds, micros = client.time()
    return int(seconds * 1_000_000 + micros)


# What the copy asks with, too


def pages(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """Yield items `size` at a time."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


def client_of(state: BlockingState) -> Any:
    """Return the client of a shard, whose answers are what the command says: redis-py types them all as either."""
    return state.redis


def text(value: bytes | str) -> str:
    """Return what Redis has answered as a text that leads to the same key or member again."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
