"""The only place that spells a Redis key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, overload

from crawlproject.models import PRIORITIES


class _Key:
    """A key, spelled as its attribute or as `key`; of a name in `_of` a colon takes the place of that."""

    def __init__(self, text: str, key: str = "") -> None:
        self.__doc__ = text
        self.key = key

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = self.key or (f"{name.removesuffix('_of')}:" if name.endswith("_of") else name)

    @overload
    def __get__(self, keys: None, owner: type) -> Self: ...
    @overload
    def __get__(self, keys: Keys, owner: type) -> str: ...
    def __get__(self, keys: Keys | None, owner: type) -> Self | str:
        return self if keys is None else f"{self._begin(keys)}:{self.key}"

    def _begin(self, keys: Keys) -> str:
        return keys.namespace


class _OfCrawl(_Key):
    """A key of the whole crawl, which all of its spiders share."""


class _OfSpider(_Key):
    """A key of one spider."""

    def _begin(self, keys: Keys) -> str:
        return f"{keys.namespace}:{keys.spider}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace, seen by one spider.

    Every key begins with the namespace; on a Redis Cluster that is a hash tag, `{crawl}`, which puts all of them
    into one slot. Of several shards each has one of its own, `{crawl:3}` (state/shards.py); `crawl` is what they
    have in common, without braces. What has to do with politeness belongs to the sources and is shared by all
    spiders; queues, leases and counts belong to a spider. A name that ends in `_of` is a prefix: behind it comes
    a source, a worker or a bucket. The text of each key says its type and what it holds; docs/flow.md repeats it.
    """

    namespace: str
    spider: str
    crawl: str = ""

    def __post_init__(self) -> None:
        if not self.crawl:
            object.__setattr__(self, "crawl", self.namespace.strip("{}"))

    # Seeds

    @property
    def seeds(self) -> str:
        """List: seeds not yet read; `lpush` here, read from the right."""
        return self._seeds(self.namespace)

    @property
    def users_seeds(self) -> str:
        """List, with CRAWL_SHARDS or on a Redis Cluster: seeds that users push; workers bring them to the lists
        above, whose keys have the namespace there.
        """
        return self._seeds(self.crawl)

    def _seeds(self, first: str) -> str:
        own = f"{self.spider}:start_urls"
        return own if first == "crawl" else f"{first}:{own}"

    # Shards

    foreign_of = _OfSpider(
        "Prefix + number of a shard, list, with CRAWL_SHARDS: what waits for that one (msgpack: `kind` seed, "
        "new, request or link; see the Lua module `shards`); of users: `{images:start_urls}:images:foreign:`."
    )
    batch_of = _OfSpider(
        "Prefix + number of a shard, list, with CRAWL_SHARDS: the heads of these that it is given at present, "
        "behind the name of that batch.",
        key="foreign_batch:",
    )
    received_of = _OfSpider(
        "Prefix + number of a shard, or `users`, sorted set, with CRAWL_SHARDS: batches that came from there "
        "lately, by when (µs)."
    )
    forwarder = _OfSpider(
        "String, TTL 3 s, with CRAWL_SHARDS: the worker whose turn it is to forward what waits for others."
    )
    processing_of = _OfSpider(
        "Prefix + worker, list: its processing list, seeds taken and not yet enqueued.",
        key="in_hand:",
    )
    feed_of = _OfSpider(
        "Prefix + digest of FILEs, hash, TTL 30 d: how far they are fed (`position`), and by which process."
    )

    # Frontier

    queue_of = _OfSpider("Prefix + priority + `:` + source, list: stored requests, the left one next.")
    delayed_of = _OfSpider("Prefix + source, sorted set: stored requests not due before their score (µs).")
    due_of = _OfSpider(
        "Prefix + tier (2: 10 rps and more, 1: 1 and more, 0: less) + priority of the best request, sorted set: "
        "sources with work by when they are due (µs)."
    )
    paced = _OfSpider(
        "Sorted set: sources by when this spider may send to them (µs), where it keeps a delay of its own."
    )
    seen_of = _OfSpider("Prefix + generation + `:` + bucket, set of integers: hashes of what was enqueued.")
    seen_meta = _OfSpider(
        "Hash: the generations of these, by how many requests each is for, and how many the last one has."
    )
    texts_of = _OfSpider(
        "Prefix + part, string: the texts of pages seen last, nine bytes each: which one, under which URL."
    )
    counters = _OfSpider(
        "Hash: requests `outstanding` (queued, delayed or leased; 0 is an empty frontier), in the `overflow` of "
        "all sources, of these `spilled` to extents; number of the last `lease`, never below the clock (µs), so "
        "that none is granted twice; the `pace` of its workers (CRAWL_PAGES_DELAY, µs)."
    )
    overflow_of = _OfSpider(
        "Prefix + priority + `:` + source, list: stored requests beyond its window, the left one next."
    )
    extents_of = _OfSpider(
        "Prefix + priority + `:` + source, list: extents of its overflow, before the list above; where in which "
        "pack each is, and how many requests it has. `dropped`: those that are still in the seen filter."
    )
    overflow_due = _OfSpider(
        "Sorted set: sources that need an extent or whose overflow may be long enough for one, by when a worker "
        "with the store is to look at them (µs)."
    )
    spill_fault = _OfSpider("String, TTL 60 s: why extents cannot be stored or read at present.")
    pack_folder = _OfSpider("String: the folder of CRAWL_OVERFLOW_STORE in which the packs of this frontier are.")
    packs = _OfSpider(
        "Sorted set: packs by how many of their extents are needed, or, below zero, by since when none is (µs)."
    )
    revisits_of = _OfSpider(
        "Prefix + source, hash: its pages that are revisited, by what the seen filter knows them by, "
        "to when, after which interval (µs), and the stored request; 8 at most."
    )
    revisits = _OfSpider("Sorted set: sources by when the first of these is due (µs), or before.")
    ledger = _OfSpider(
        "Hash: source to how many links found on pages it has admitted, how many of them are poor ones, and, if "
        "there are any, how many sitemaps it has led to."
    )
    found_hosts_of = _OfSpider(
        "Prefix + source, set of integers: 32-bit hashes of the hosts below its domain that links led to."
    )
    workers = _OfSpider("Sorted set: workers by their last heartbeat (µs).")
    leases_of = _OfSpider("Prefix + worker, hash: lease id to stored request.")

    # Politeness

    slots = _OfCrawl(
        "Sorted set: each source's next free send slot (µs); missing or past: free now. "
        "`kept apart ` + source: the same for others' robots.txt. `last ` + source: its last slot given out."
    )
    spiders = _OfCrawl("Sorted set: spiders by the last heartbeat of a worker (µs).")
    waiting_spiders = _OfCrawl(
        "Hash, TTL 1 h: source to until when its next slots are left to which spider (µs, blank, spider)."
    )
    rates = _OfCrawl("Hash: every known source to its rate limit in force (rps), overrides included.")
    catalogue = _OfCrawl(
        "Hash: source to its row: the rate computed from its size (rps), the domains that it is bound to, with "
        "blanks around each (none: to any), and its options (JSON: circuit, gone, robots, hosts), with tabs "
        "between."
    )
    override_rate_of = _OfCrawl(
        "Prefix + source, string: the operator's rate (rps); `5 over-robots` lifts the delay of robots.txt."
    )
    hosts = _OfCrawl("Hash: registrable domain to the source that the catalogue gives it.")
    circuit_of = _OfCrawl(
        "Prefix + source, msgpack: the state of its circuit, and what slows or holds it; TTL 1 d where nothing "
        "does."
    )
    window_of = _OfCrawl(
        "Prefix + source, msgpack, TTL 10 min: its last results, hosts, latencies and fetches, and how many "
        "requests it got in each of the last 64 seconds."
    )
    halted = _OfCrawl("Set: sources halted until an operator acts; `sadd` halts, `srem` resumes.")
    temp_halted = _OfCrawl("Set: sources halted for the open period of their circuit.")
    excluded = _OfCrawl(
        "Set: sources and domains that nothing goes out to; `sadd` excludes, `srem` includes again."
    )
    excluded_by = _OfCrawl(
        "Hash: what is excluded to which operator did it, when and why, and to its line in `CRAWL_EXCLUDE` (JSON)."
    )
    watchlist = _OfCrawl(
        "Set: sources that the leader checks each second: halted, probed, held, slowed, failing.",
        key="troubled",
    )
    robots_of = _OfCrawl(
        "Prefix + URL, msgpack: a robots.txt, or where it leads, and who fetches it; TTL: two days after it has "
        "run out, or 60 while it is unreachable."
    )
    robots_stored = _OfCrawl(
        "Sorted set: URLs of the copies with more than a short text, by when they were stored (s) x 2^20 + their "
        "size (B), and the sum of the sizes."
    )
    robots_delays_of = _OfCrawl(
        "Prefix + source, sorted set: its origins by the delay that their robots.txt asks for (ms) x 2^26 + the "
        "minute in which it last did; TTL: two days."
    )
    statuses_of = _OfCrawl(
        "Prefix + source, list: the last 50 statuses, the newest first; TTL 1 h, of a source in trouble 90 d.",
        key="statuslast50req:",
    )
    requests_of = _OfCrawl(
        "Prefix + block of four days + `:` + source, hash, TTL 94 d: hour of the block to what was requested in "
        "it (msgpack); `r:` + host to when its robots.txt was last fetched, and the status."
    )
    incidents_of = _OfCrawl(
        "Prefix + source, list, TTL 90 d: its last 24 halts, holds, back-offs and resumptions, with reasons."
    )
    pulse = _OfCrawl("String, TTL 5 s: a leader is alive; without it no slot is granted.")
    leader = _OfCrawl("String, TTL 5 s: the worker that leads.")
    fence = _OfCrawl(
        "Integer: the leader's term, up with each change of leader; a leader of an older term writes nothing."
    )
    paused = _OfCrawl("String, TTL 5 s: why nothing is leased at present (unread events at their bound).")
    clock = _OfCrawl(
        "Hash: the latest time seen (µs), the server it was seen by, how far the crawl's time is ahead of it."
    )
    layout = _OfCrawl(
        "Integer, with CRAWL_SHARDS: how many shards the crawl has; once for the crawl, where the key begins with "
        "CRAWL_NAMESPACE, and in each shard."
    )

    # Results

    image_events = _OfCrawl("Stream: event `image_metadata_updates`.", key="image_metadata_updates")
    probe_events = _OfCrawl("Stream: event `image_probes`.", key="image_probes")
    link_rot_events = _OfCrawl("Stream: event `link_rot`.", key="link_rot")
    failed_events = _OfCrawl("Stream: event `failed`, as the fields of its dead letter.", key="failed")
    page_events = _OfCrawl("Stream: event `pages`.", key="pages")
    media_events = _OfCrawl("Stream: event `page_media`.", key="page_media")
    halted_events = _OfCrawl("Stream: event `crawl_halted`.", key="crawl_halted")
    resumed_events = _OfCrawl("Stream: event `crawl_resumed`.", key="crawl_resumed")
    audit = _OfCrawl(
        "Stream: the last 10,000 halts, resumptions, probings, overrides, exclusions, each with who did it; its "
        "consumer group `leaders` has how far leaders have logged it."
    )
    ordered_by_of = _OfCrawl(
        "Prefix + source, hash, TTL 60 s, 1 h with `resume`: `halt`, `rate`: who gave that order by a command or "
        "the dashboard; `resume`: an order to lift what slows or holds it."
    )
    readers = _OfCrawl(
        "Hash: reader of the events to who reads as it, or did last, and how far it has read each stream, above "
        "which nothing is trimmed (msgpack, see the Lua module `readers`)."
    )
    dead = _OfSpider("Stream: dead letters: the stored request or seed, and the reason.")
    counts = _OfSpider(
        "Hash: source to its counts (msgpack): fetched, thumbnails, probes, pages, responses, items, link_rot, "
        "failed, retried, bytes, answers, latency_us, excluded, purged, sitemaps, sitemaps_left_out, "
        "revisits_unchanged, not_html_ + type, links_ + what became of them, and error_ + kind."
    )
    totals = _OfSpider(
        "Hash: seeds admitted and refused, duplicates, deliveries lost, events trimmed, refusals not kept; the "
        "sum of each count; `latency:` + bucket (`LATENCY_BOUNDS` in state/calls/) to answers, `fetch:` + "
        "bucket to whole fetches, `fetch_us`, their sum; `parse:` + bucket (`PARSE_BOUNDS`) and `parse_us`, the "
        "same of reading pages."
    )
    dead_sources = _OfSpider(
        'Hash: source to its dead letters at present; "" to those of what its site forbids, or was found on a '
        "page: beside the bound."
    )
    active = _OfSpider("Sorted set: sources with results in the last hour, by the last of them (µs).")

    @property
    def due(self) -> tuple[str, ...]:
        """The sets of sources that are due, by rate and priority."""
        return tuple(
            f"{self.due_of}{tier}{number}" for tier in (2, 1, 0) for number in reversed(range(PRIORITIES))
        )

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that carry events."""
        return (
            self.image_events,
            self.probe_events,
            self.link_rot_events,
            self.failed_events,
            self.page_events,
            self.media_events,
            self.halted_events,
            self.resumed_events,
        )

    @classmethod
    def spellings(cls) -> list[dict[str, str]]:
        """Return the keys of the crawl, and those of a spider, by name, without what they begin with."""
        return [
            {name: key.key for name, key in vars(cls).items() if isinstance(key, kind)}
            for kind in (_OfCrawl, _OfSpider)
        ]

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each key's name and spelling, in a fixed order."""
        for name, attribute in vars(Keys).items():
            if isinstance(attribute, property | _Key) and name not in {"streams", "due"}:
                yield name, getattr(self, name)
