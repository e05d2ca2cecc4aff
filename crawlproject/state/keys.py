"""The only place that spells a Redis key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crawlproject.models import PRIORITIES


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace, seen by one spider.

    Every key begins with the namespace; on a Redis Cluster that is a hash tag, `{crawl}`, which puts all of them
    into one slot. Of several shards each has one of its own, `{crawl:3}` (state/shards.py); `crawl` is what they
    have in common, without braces. What has to do with politeness belongs to the sources and is shared by all
    spiders; queues, leases and counts belong to a spider. A name that ends in `_of` is a prefix:
    behind it comes a source, a worker or a bucket. The docstring of each key says its type and what it holds;
    docs/flow.md repeats it.
    """

    namespace: str
    spider: str
    crawl: str = ""

    def __post_init__(self) -> None:
        if not self.crawl:
            object.__setattr__(self, "crawl", self.namespace.strip("{}"))

    def _of_spider(self, name: str) -> str:
        return f"{self.namespace}:{self.spider}:{name}"

    # Seeds

    @property
    def seeds(self) -> str:
        """List: seeds not yet read; `lpush` here, read from the right."""
        own = f"{self.spider}:start_urls"
        return own if self.namespace == "crawl" else f"{self.namespace}:{own}"

    @property
    def users_seeds(self) -> str:
        """List, with CRAWL_SHARDS or on a Redis Cluster: seeds that users push; workers bring them to the lists
        above, whose keys have the namespace there.
        """
        own = f"{self.spider}:start_urls"
        return own if self.crawl == "crawl" else f"{self.crawl}:{own}"

    # Shards

    @property
    def foreign_of(self) -> str:
        """Prefix + number of a shard, list, with CRAWL_SHARDS: what waits for that one (msgpack: `kind` seed,
        request or link; see the Lua module `shards`); those of users: `{images:start_urls}:images:foreign:`.
        """
        return self._of_spider("foreign:")

    @property
    def batch_of(self) -> str:
        """Prefix + number of a shard, list, with CRAWL_SHARDS: the heads of these that it is given at present,
        behind the name of that batch.
        """
        return self._of_spider("foreign_batch:")

    @property
    def received_of(self) -> str:
        """Prefix + number of a shard, or `users`, sorted set, with CRAWL_SHARDS: batches that came from there
        lately, by when (µs).
        """
        return self._of_spider("received:")

    @property
    def forwarder(self) -> str:
        """String, TTL 3 s, with CRAWL_SHARDS: the worker whose turn it is to forward what waits for others."""
        return self._of_spider("forwarder")

    @property
    def processing_of(self) -> str:
        """Prefix + worker, list: its processing list, seeds taken and not yet enqueued."""
        return self._of_spider("in_hand:")

    @property
    def feeders(self) -> str:
        """Hash, TTL 60 s: process that feeds seeds to when it said so (µs) and how many it has left, if known."""
        return self._of_spider("feeders")

    @property
    def feed_of(self) -> str:
        """Prefix + digest of FILEs, hash, TTL 30 d: how far they are fed (`position`), and by which process."""
        return self._of_spider("feed:")

    # Frontier

    @property
    def queue_of(self) -> str:
        """Prefix + priority + `:` + source, list: stored requests, the left one next."""
        return self._of_spider("queue:")

    @property
    def delayed_of(self) -> str:
        """Prefix + source, sorted set: stored requests not due before their score (µs)."""
        return self._of_spider("delayed:")

    @property
    def due_of(self) -> str:
        """Prefix + tier (2: 10 rps and more, 1: 1 and more, 0: less) + priority of the best request, sorted set:
        sources with work by when they are due (µs).
        """
        return self._of_spider("due:")

    @property
    def paced(self) -> str:
        """Sorted set: sources by when this spider may send to them (µs), where it keeps a delay of its own."""
        return self._of_spider("paced")

    @property
    def seen_of(self) -> str:
        """Prefix + bucket, or `e` + generation + `:` + bucket, set of integers: hashes of what was enqueued."""
        return self._of_spider("seen:")

    @property
    def seen_bloom_of(self) -> str:
        """Prefix + generation + `:` + partition, string: a Bloom filter of links (`CRAWL_SEEN_LINKS`)."""
        return self._of_spider("seen_bloom:")

    @property
    def seen_meta(self) -> str:
        """Hash: the generations of these (`exact`, `bloom`), and how many requests the last one of each has."""
        return self._of_spider("seen_meta")

    @property
    def texts_of(self) -> str:
        """Prefix + part, string: the texts of pages seen last, nine bytes each: which one, under which URL."""
        return self._of_spider("texts:")

    @property
    def outstanding(self) -> str:
        """Integer: requests queued, delayed or leased; 0 is an empty frontier."""
        return self._of_spider("outstanding")

    @property
    def overflow_of(self) -> str:
        """Prefix + priority + `:` + source, list: stored requests beyond its window, the left one next."""
        return self._of_spider("overflow:")

    @property
    def overflow(self) -> str:
        """Integer: requests in the lists above, of all sources; not outstanding."""
        return self._of_spider("overflow")

    @property
    def extents_of(self) -> str:
        """Prefix + priority + `:` + source, list: extents of its overflow, before the list above; where in
        which pack each is, and how many requests it has.
        """
        return self._of_spider("extents:")

    @property
    def spilled(self) -> str:
        """Integer: requests in the extents of all sources; they count in `overflow`, too."""
        return self._of_spider("spilled")

    @property
    def overflow_due(self) -> str:
        """Sorted set: sources that need an extent or whose overflow may be long enough for one, by when a worker
        with the store is to look at them (µs).
        """
        return self._of_spider("overflow_due")

    @property
    def spill_fault(self) -> str:
        """String, TTL 60 s: why extents cannot be stored or read at present."""
        return self._of_spider("spill_fault")

    @property
    def pack_folder(self) -> str:
        """String: the folder of CRAWL_OVERFLOW_STORE in which the packs of this frontier are."""
        return self._of_spider("pack_folder")

    @property
    def packs(self) -> str:
        """Hash: pack to how many of its extents are still needed."""
        return self._of_spider("packs")

    @property
    def packs_dead(self) -> str:
        """Sorted set: packs that are no longer needed, by when the last of their extents went (µs)."""
        return self._of_spider("packs_dead")

    @property
    def dropped_extents(self) -> str:
        """List: extents that were dropped, and whose requests still have their places in the seen filter."""
        return self._of_spider("dropped_extents")

    @property
    def revisits_of(self) -> str:
        """Prefix + source, hash: its pages that are revisited, by the first 8 bytes of what the seen filter
        knows them by, to when, after which interval (µs), and the stored request; 8 at most.
        """
        return self._of_spider("revisits:")

    @property
    def revisits(self) -> str:
        """Sorted set: sources by when the first of these is due (µs), or before."""
        return self._of_spider("revisits")

    @property
    def ledger(self) -> str:
        """Hash: source to how many links found on pages it has admitted, how many of them are poor ones, and, if
        there are any, how many sitemaps it has led to.
        """
        return self._of_spider("ledger")

    @property
    def found_hosts_of(self) -> str:
        """Prefix + source, set of integers: 32-bit hashes of the hosts below its domain that links led to."""
        return self._of_spider("found_hosts:")

    @property
    def dropped(self) -> str:
        """List: stored requests that were dropped, and still have their places in the seen filter."""
        return self._of_spider("dropped")

    @property
    def workers(self) -> str:
        """Sorted set: workers by their last heartbeat (µs)."""
        return self._of_spider("workers")

    @property
    def worker_settings(self) -> str:
        """Hash: worker -> its settings that should be the same for all, as JSON, until another one joins."""
        return self._of_spider("worker_settings")

    @property
    def starting(self) -> str:
        """Integer, TTL 1 min, with CRAWL_SHARDS: how many workers have just chosen this shard."""
        return self._of_spider("starting")

    @property
    def leases_of(self) -> str:
        """Prefix + worker, hash: lease id to stored request."""
        return self._of_spider("leases:")

    @property
    def lease_sequence(self) -> str:
        """Integer: number of the last lease granted; never below the clock (µs), so that none is granted twice."""
        return self._of_spider("lease_sequence")

    # Politeness

    @property
    def slots(self) -> str:
        """Sorted set: each source's next free send slot (µs); missing or past: free now."""
        return f"{self.namespace}:slots"

    @property
    def spiders(self) -> str:
        """Sorted set: spiders by the last heartbeat of a worker (µs)."""
        return f"{self.namespace}:spiders"

    @property
    def waiting_spiders(self) -> str:
        """Hash, TTL 1 h: source to until when its next slots are left to which spider (µs, blank, spider)."""
        return f"{self.namespace}:waiting_spiders"

    @property
    def rates(self) -> str:
        """Hash: source to its rate limit in force (rps), overrides included."""
        return f"{self.namespace}:rates"

    @property
    def limits(self) -> str:
        """Hash: source to the rate computed from its size (rps)."""
        return f"{self.namespace}:limits"

    @property
    def override_rate_of(self) -> str:
        """Prefix + source, string: the operator's rate (rps); `5 over-robots` lifts the delay of robots.txt."""
        return f"{self.namespace}:override_rate:"

    @property
    def sources(self) -> str:
        """Set: every known source, from the catalogue or from a seed."""
        return f"{self.namespace}:sources"

    @property
    def hosts(self) -> str:
        """Hash: registrable domain to the source that the catalogue gives it."""
        return f"{self.namespace}:hosts"

    @property
    def claims(self) -> str:
        """Hash: source to the domains that the catalogue binds it to, with blanks around each; none: to any."""
        return f"{self.namespace}:claims"

    @property
    def options(self) -> str:
        """Hash: source to what else the catalogue says about it (JSON: circuit, gone, robots, hosts)."""
        return f"{self.namespace}:options"

    @property
    def circuit_of(self) -> str:
        """Prefix + source, hash: the state of its circuit, and what slows or holds it; gone when it is at rest."""
        return f"{self.namespace}:circuit:"

    @property
    def window_of(self) -> str:
        """Prefix + source, hash, TTL 10 min: its last minute's results in buckets, its latency, its fetches."""
        return f"{self.namespace}:window:"

    @property
    def halted(self) -> str:
        """Set: sources halted until an operator acts; `sadd` halts, `srem` resumes."""
        return f"{self.namespace}:halted"

    @property
    def temp_halted(self) -> str:
        """Set: sources halted for the open period of their circuit."""
        return f"{self.namespace}:temp_halted"

    @property
    def excluded(self) -> str:
        """Set: sources and domains that nothing goes out to; `sadd` excludes, `srem` includes again."""
        return f"{self.namespace}:excluded"

    @property
    def excluded_by(self) -> str:
        """Hash: what an operator has excluded to who, when and why (JSON)."""
        return f"{self.namespace}:excluded_by"

    @property
    def excluded_by_file(self) -> str:
        """Hash: what the leader's `CRAWL_EXCLUDE` names to the comment in its line."""
        return f"{self.namespace}:excluded_by_file"

    @property
    def watchlist(self) -> str:
        """Set: sources that the leader checks each second: halted, probed, held, slowed, failing."""
        return f"{self.namespace}:troubled"

    @property
    def robots_of(self) -> str:
        """Prefix + URL, hash: a robots.txt, or where it leads; TTL: two days after it has run out, or 60 while
        it is unreachable.
        """
        return f"{self.namespace}:robots:"

    @property
    def robots_stored(self) -> str:
        """Sorted set: URLs of the copies with a text, by when they were stored (s) x 2^20 + their size (B)."""
        return f"{self.namespace}:robots_stored"

    @property
    def robots_size(self) -> str:
        """Integer: the sum of these sizes (B)."""
        return f"{self.namespace}:robots_size"

    @property
    def robots_fetch_of(self) -> str:
        """Prefix + URL, string, TTL 5 s: the look-up that fetches that robots.txt, which makes it last."""
        return f"{self.namespace}:robots_fetch:"

    @property
    def robots_turn_of(self) -> str:
        """Prefix + source, string, TTL: from when on it may be sent a request for others' robots.txt (µs)."""
        return f"{self.namespace}:robots_turn:"

    @property
    def robots_delays_of(self) -> str:
        """Prefix + source, sorted set: its origins by the delay that their robots.txt asks for (s)."""
        return f"{self.namespace}:robots_delays:"

    @property
    def statuses_of(self) -> str:
        """Prefix + source, list: the last 50 statuses, the newest first; gone after a quiet hour."""
        return f"{self.namespace}:statuslast50req:"

    @property
    def requests_of(self) -> str:
        """Prefix + block of four days + `:` + source, hash, TTL 94 d: hour of the block to what was requested in
        it (msgpack); `r:` + host to when its robots.txt was last fetched, and the status.
        """
        return f"{self.namespace}:requests:"

    @property
    def seconds_of(self) -> str:
        """Prefix + source, string, TTL 2 min: how many requests it got in each of the last 64 seconds."""
        return f"{self.namespace}:seconds:"

    @property
    def incidents_of(self) -> str:
        """Prefix + source, list, TTL 90 d: its last 24 halts, holds, back-offs and resumptions, with reasons."""
        return f"{self.namespace}:incidents:"

    @property
    def pulse(self) -> str:
        """String, TTL 5 s: a leader is alive; without it no slot is granted."""
        return f"{self.namespace}:pulse"

    @property
    def leader(self) -> str:
        """String, TTL 5 s: the worker that leads."""
        return f"{self.namespace}:leader"

    @property
    def fence(self) -> str:
        """Integer: the leader's term, up with each change of leader; a leader of an older term writes nothing."""
        return f"{self.namespace}:fence"

    @property
    def paused(self) -> str:
        """String, TTL 5 s: why nothing is leased at present (unread events at their bound)."""
        return f"{self.namespace}:paused"

    @property
    def clock(self) -> str:
        """Hash: the latest time seen (µs), the server it was seen by, how far the crawl's time is ahead of it."""
        return f"{self.namespace}:clock"

    @property
    def layout(self) -> str:
        """Hash, with CRAWL_SHARDS: how many `shards` the crawl has, and the `version` of what says where a source
        is; once for the crawl, where it begins with CRAWL_NAMESPACE, and in each shard.
        """
        return f"{self.namespace}:layout"

    # Results

    @property
    def image_events(self) -> str:
        """Stream: event `image_metadata_updates`."""
        return f"{self.namespace}:image_metadata_updates"

    @property
    def probe_events(self) -> str:
        """Stream: event `image_probes`."""
        return f"{self.namespace}:image_probes"

    @property
    def link_rot_events(self) -> str:
        """Stream: event `link_rot`."""
        return f"{self.namespace}:link_rot"

    @property
    def failed_events(self) -> str:
        """Stream: event `failed`, as the fields of its dead letter."""
        return f"{self.namespace}:failed"

    @property
    def page_events(self) -> str:
        """Stream: event `pages`."""
        return f"{self.namespace}:pages"

    @property
    def halted_events(self) -> str:
        """Stream: event `crawl_halted`."""
        return f"{self.namespace}:crawl_halted"

    @property
    def resumed_events(self) -> str:
        """Stream: event `crawl_resumed`."""
        return f"{self.namespace}:crawl_resumed"

    @property
    def audit(self) -> str:
        """Stream: the last 10,000 halts, resumptions, probings, overrides, exclusions, each with who did it."""
        return f"{self.namespace}:audit"

    @property
    def audit_told(self) -> str:
        """String: the last entry of the audit trail that a leader has logged."""
        return f"{self.namespace}:audit_told"

    @property
    def ended_sessions(self) -> str:
        """Sorted set: sessions of the dashboard that were logged out, by the time at which they expire."""
        return f"{self.namespace}:ended_sessions"

    @property
    def ordered_by_of(self) -> str:
        """Prefix + source, hash, TTL 60 s: `halt`, `rate`: who gave that order by a command or the dashboard."""
        return f"{self.namespace}:ordered_by:"

    @property
    def readers(self) -> str:
        """Hash: reader + newline + stream to the last entry id it has written; nothing above is trimmed."""
        return f"{self.namespace}:readers"

    @property
    def reader_of(self) -> str:
        """Prefix + reader, hash: who reads as it or did last, since when, until when it has the lease (µs); by
        stream where it stands, and how many entries there were up to that, if Redis knew.
        """
        return f"{self.namespace}:reader:"

    @property
    def dead(self) -> str:
        """Stream: dead letters: the stored request or seed, and the reason."""
        return self._of_spider("dead")

    @property
    def counts(self) -> str:
        """Hash: source to its counts (msgpack): fetched, thumbnails, probes, pages, link_rot, failed, retried,
        bytes, answers, latency_us, excluded, purged, sitemaps, sitemaps_left_out, revisits_unchanged, links_ +
        what became of them, and error_ + kind.
        """
        return self._of_spider("counts")

    @property
    def totals(self) -> str:
        """Hash: seeds admitted and refused, duplicates, deliveries lost, events trimmed, refusals not kept; the
        sum of each count.
        """
        return self._of_spider("totals")

    @property
    def dead_sources(self) -> str:
        """Hash: source to its dead letters at present; "" to those of what its site forbids, or was found on a
        page: beside the bound.
        """
        return self._of_spider("dead_sources")

    @property
    def latencies(self) -> str:
        """Hash: bucket of latency (`LATENCY_BOUNDS` in state/scripts/) to answers, of all sources; `fetch:` +
        bucket, the same of whole fetches; `fetch_us`, their sum; `parse:` + bucket (`PARSE_BOUNDS`) and
        `parse_us`, the same of reading pages.
        """
        return self._of_spider("latencies")

    @property
    def active(self) -> str:
        """Sorted set: sources with results in the last hour, by the last of them (µs); others rest."""
        return self._of_spider("active")

    @property
    def sample(self) -> str:
        """Hash, TTL 60 s: when the monitor last sampled the counters (µs), and their values (msgpack)."""
        return self._of_spider("reading")

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
            self.halted_events,
            self.resumed_events,
        )

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each key's name and spelling, in a fixed order."""
        for name, attribute in vars(Keys).items():
            if isinstance(attribute, property) and name not in {"streams", "due"}:
                yield name, getattr(self, name)
