"""The table of settings: name, default, parser, meaning and unit of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import IPv6Network
from typing import Any

from crawlproject import __version__
from crawlproject.config.circuit_rules import CircuitRules
from crawlproject.config.parsers import (
    Network,
    Parser,
    address,
    analyses,
    choice,
    contact,
    flag,
    folder,
    formats,
    namespace,
    nat64_prefixes,
    networks,
    number,
    opt_outs,
    optional,
    ports,
    servers,
    shard_numbers,
    sizes,
    storage,
    text,
    whole,
)
from crawlproject.config.redis_url import redis_url
from crawlproject.models import DEFAULT_FORMATS, OPT_OUTS, THUMBNAIL_FORMATS, THUMBNAIL_MODES


def setting(name: str, default: Any, parse: Parser, meaning: str, *, unit: str = "", secret: bool = False) -> Any:
    """Return a field of a dataclass of settings; `parse` raises ValueError with what a value must be."""
    metadata = {
        "name": name, "default": default, "parse": parse, "meaning": meaning, "unit": unit, "secret": secret
    }  # fmt: skip
    return field(metadata=metadata, repr=not secret)


# Bounds of the whole crawl, which shards divide, and the least that each has of them.
_DIVIDED = {
    "high_water": 4,
    "overflow_maxlen": 1,
    "stream_maxlen": 1,
}

_MOST_LINKS = 1_000_000_000_000  # Lua counts exactly to 2**53, and msgpack has no numbers beyond 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings in force; the metadata of each field holds its name, default and meaning."""

    redis_url: str | None = setting(
        "REDIS_URL",
        None,
        redis_url,
        "the Redis to share, also as `redis+sentinel://host:26379/service` or `redis+cluster://host:6379`, or "
        "several URLs separated by blanks, one a shard; none: an embedded one under `.crawl/`",
    )
    images_store: str = setting(
        "IMAGES_STORE", ".crawl/thumbnails", storage, "where thumbnails go: a folder or `s3://bucket/prefix/`"
    )
    endpoint_url: str | None = setting(
        "AWS_ENDPOINT_URL", None, text, "endpoint of an S3-compatible store; none: Amazon's"
    )
    max_idle: float = setting(
        "MAX_IDLE_TIME_BEFORE_CLOSE",
        0,
        number(0),
        "close after this many seconds without work in the whole crawl; 0: stay",
        unit="s",
    )
    download_maxsize: int = setting(
        "DOWNLOAD_MAXSIZE", 50_000_000, whole(1), "largest body downloaded", unit="bytes"
    )
    download_timeout: float = setting(
        "DOWNLOAD_TIMEOUT", 30, number(0, above=True), "longest time for one download", unit="s"
    )
    sources: str | None = setting(
        "CRAWL_SOURCES", None, text, "the catalogue of sources: a file (JSON, Parquet) or an HTTP URL"
    )
    unknown_sources: str = setting(
        "CRAWL_UNKNOWN_SOURCES",
        "minimum",
        choice("minimum", "refuse"),
        "sources that the catalogue does not name: crawled at the `minimum` rate, or `refuse`d",
    )
    source_trust: str = setting(
        "CRAWL_SOURCE_TRUST",
        "catalogue",
        choice("catalogue", "hosts"),
        "where a seed may name a source of the catalogue whose row has no `hosts`: on any host (`catalogue`), "
        "or only on those of its `source_url` (`hosts`)",
    )
    exclude: str | None = setting(
        "CRAWL_EXCLUDE",
        None,
        text,
        "a file of domains and sources that nothing goes out to, one a line; read again when it changes",
    )
    contact: str | None = setting(
        "CRAWL_CONTACT", None, contact, "URL or mailto: in the User-Agent; required by `scrapy crawl`"
    )
    namespace: str = setting(
        "CRAWL_NAMESPACE",
        "crawl",
        namespace,
        "first part of every key; on a Redis Cluster in braces (`{crawl}`), as their hash tag",
    )
    shards: int = setting(
        "CRAWL_SHARDS",
        1,
        whole(1, 256),
        "parts of the frontier, each with workers of its own, in one Redis, a Redis Cluster, or a Redis each: the "
        "same for the whole life of a crawl",
        unit="shards",
    )
    shard: tuple[int, ...] = setting(
        "CRAWL_SHARD",
        (),
        shard_numbers,
        "the shard that a worker serves, from 0, or several separated by commas, with a crawler each; none: the "
        "one with the fewest workers",
    )
    redis_wait: str = setting(
        "CRAWL_REDIS_WAIT",
        "forwarded",
        choice("forwarded", "all"),
        "what a replica must have before the crawl goes on, where a master has one: what is forwarded to another "
        "shard (`forwarded`), or `all` that workers write",
    )
    max_retries: int = setting(
        "CRAWL_MAX_RETRIES", 1, whole(0, 100), "further attempts after a temporary failure", unit="attempts"
    )
    retry_delay: float = setting(
        "CRAWL_RETRY_DELAY", 10, number(0, above=True), "first back-off; it doubles with every retry", unit="s"
    )
    heartbeat_timeout: float = setting(
        "CRAWL_HEARTBEAT_TIMEOUT",
        30,
        number(1),
        "a worker that is silent for this long loses its leases",
        unit="s",
    )
    high_water: int = setting(
        "CRAWL_FRONTIER_HIGH_WATER",
        1_000_000,
        whole(4),
        "most requests in the frontier; then seeds stay in the list, and of links found a source queues 8",
        unit="requests",
    )
    overflow_maxlen: int = setting(
        "CRAWL_OVERFLOW_MAXLEN",
        1_000_000,
        whole(1),
        "most requests in Redis that wait beyond what their sources can be sent in ten minutes; then seeds stay "
        "in the list, and links found are turned away, those of one source from a quarter of what others leave",
        unit="requests",
    )
    overflow_store: str | None = setting(
        "CRAWL_OVERFLOW_STORE",
        None,
        optional(storage),
        "where most of what waits so is kept, the same for all workers: a folder or `s3://bucket/prefix/`; none: "
        "it stays in Redis. While it is down leasing pauses when a fifth of `CRAWL_OVERFLOW_MAXLEN` wait in Redis",
    )
    pages_budget_max: int = setting(
        "CRAWL_PAGES_BUDGET_MAX",
        1_000_000,
        whole(0, _MOST_LINKS),
        "most links found on pages that a source admits in all, a quarter of them poor ones: 1,000, and 4 more "
        "for each good page of it (fetched, indexable, with new content), up to this number; 0: no budget at all",
        unit="links",
    )
    stream_maxlen: int = setting(
        "CRAWL_STREAM_MAXLEN",
        1_000_000,
        whole(1),
        "events kept in each stream, and dead letters; while more events are unread, or there are as many dead "
        "letters, leasing pauses; those of what robots.txt or an opt-out forbids, or was found on pages, do not "
        "count, and of them only as many are kept",
        unit="events",
    )
    events_unread: str = setting(
        "CRAWL_EVENTS_UNREAD",
        "keep",
        choice("keep", "drop"),
        "`drop`: beyond `CRAWL_STREAM_MAXLEN` the oldest events of a stream go, read or not, and nothing pauses",
    )
    max_pixels: int = setting(
        "CRAWL_MAX_PIXELS", 100_000_000, whole(1), "larger images are not decoded", unit="pixels"
    )
    formats: tuple[str, ...] = setting(
        "CRAWL_FORMATS",
        DEFAULT_FORMATS,
        formats,
        "formats of images that are read; all others are unreadable",
    )
    pages_images: str = setting(
        "CRAWL_PAGES_IMAGES",
        "licensed",
        choice("licensed", "all", "none"),
        "images found on pages that the spider `images` gets: those with an open licence (`licensed`), `all`, "
        "or `none`",
    )
    pages_revisit: float = setting(
        "CRAWL_PAGES_REVISIT",
        0,
        number(0, 30 * 86_400),
        "home pages, seeds and sitemaps, 8 of a source at most, are revisited after this time; later the "
        "less they change; 0: never",
        unit="s",
    )
    thumbnail_sizes: tuple[int, ...] = setting(
        "CRAWL_THUMBNAIL_SIZES",
        (640,),
        sizes,
        "sizes of thumbnails, 16 to 2048, one or several, the first of which is the event's `thumbnail`: their "
        "longest side, unless `CRAWL_THUMBNAIL_MODE` says otherwise; smaller images keep their size",
        unit="pixels",
    )
    thumbnail_mode: str = setting(
        "CRAWL_THUMBNAIL_MODE",
        "keep_ratio_largest",
        choice(*THUMBNAIL_MODES),
        "what the size is of: " + ", ".join(f"{of} (`{name}`)" for name, of in THUMBNAIL_MODES.items()),
    )
    thumbnail_format: str = setting(
        "CRAWL_THUMBNAIL_FORMAT",
        "JPEG",
        choice(*THUMBNAIL_FORMATS),
        "format of thumbnails, `JPEG` or `WebP`; their names end with `.jpg` or `.webp`",
    )
    thumbnail_quality: int = setting(
        "CRAWL_THUMBNAIL_QUALITY", 85, whole(1, 95), "quality of thumbnails, in either format", unit="1 to 95"
    )
    keep_originals: str | None = setting(
        "CRAWL_KEEP_ORIGINALS",
        None,
        optional(storage),
        "where the images themselves go: a folder or `s3://bucket/prefix/`; none: they are not kept",
    )
    analyses: tuple[str, ...] = setting(
        "CRAWL_ANALYSES",
        (),
        analyses,
        "functions that look at each image, as `module:function`, and whose results go into its event",
    )
    decode_processes: int = setting(
        "CRAWL_DECODE_PROCESSES",
        2,
        whole(1, 64),
        "images that a worker decodes at the same time, each in its own process",
        unit="processes",
    )
    decode_timeout: float = setting(
        "CRAWL_DECODE_TIMEOUT",
        20,
        number(0, above=True),
        "an image that takes longer to decode is unreadable",
        unit="s",
    )
    opt_outs: tuple[str, ...] = setting(
        "CRAWL_OPT_OUTS",
        tuple(OPT_OUTS),
        opt_outs,
        "opt-outs that forbid keeping anything of an image; the others are recorded in its event",
    )
    circuit_errors: float = setting(
        "CRAWL_CIRCUIT_ERRORS",
        0.1,
        CircuitRules.PARSERS["errors"],
        "share of errors above which it opens",
        unit="0 to 1",
    )
    strain: bool = setting(
        "CRAWL_STRAIN",
        True,
        flag,
        "latency back-off: slow down at five times the source's usual latency, and over 1 s more",
    )
    pages_delay: float = setting(
        "CRAWL_PAGES_DELAY",
        70,
        number(0, 86_400),
        "between two requests of the spider `pages` to one source, besides the source's rate; 0: only that",
        unit="s",
    )
    robots_delay_max: float = setting(
        "CRAWL_ROBOTS_DELAY_MAX",
        60,
        number(0, above=True),
        "longest delay between requests that a robots.txt can impose",
        unit="s",
    )
    allow_networks: tuple[Network, ...] = setting(
        "CRAWL_ALLOW_NETWORKS", (), networks, "private networks that may be crawled, on every port"
    )
    deny_networks: tuple[Network, ...] = setting(
        "CRAWL_DENY_NETWORKS",
        (),
        networks,
        "networks that are never connected to, also where `CRAWL_ALLOW_NETWORKS` opens them",
    )
    nat64_prefixes: tuple[IPv6Network, ...] = setting(
        "CRAWL_NAT64_PREFIXES",
        (),
        nat64_prefixes,
        "NAT64 prefixes of the workers' network: its addresses are judged by the IPv4 addresses in them",
    )
    allow_ports: tuple[int, ...] = setting(
        "CRAWL_ALLOW_PORTS", (), ports, "ports that may be crawled besides 80 and 443", unit="ports"
    )
    dns_servers: tuple[str, ...] = setting(
        "CRAWL_DNS_SERVERS", (), servers, "name servers, as `address` or `address:port`; none: the system's"
    )
    tls_failures: str = setting(
        "CRAWL_TLS_FAILURES",
        "refuse",
        choice("refuse", "record"),
        "a site with an invalid certificate: `refuse` it, or crawl it and `record` that in the event",
    )
    shutdown_grace: float = setting(
        "CRAWL_SHUTDOWN_GRACE", 30, number(0), "time that requests in flight get to finish at a stop", unit="s"
    )
    log_format: str = setting(
        "CRAWL_LOG_FORMAT",
        "text",
        choice("text", "json"),
        "format of the log: `text` for people, or `json`, one object a line",
    )
    monitor_file: str | None = setting(
        "CRAWL_MONITOR_FILE", None, text, "file for the monitor's lines, one every 5 s; none: they go to the log"
    )
    metrics_port: int | None = setting(
        "CRAWL_METRICS_PORT",
        None,
        whole(1, 65535),
        "port of `/metrics`, different for each process; none: 9410 for `scrapy monitor`, off for workers",
        unit="port",
    )
    metrics_address: str = setting(
        "CRAWL_METRICS_ADDRESS", "127.0.0.1", address, "address that `/metrics` is bound to"
    )
    pages_store: str | None = setting(
        "CRAWL_PAGES_STORE",
        None,
        storage,
        "where pages go, as WARC files: a folder or `s3://bucket/prefix/`; none: they are not kept",
    )
    pages_spool: str = setting(
        "CRAWL_PAGES_SPOOL",
        ".crawl/spool",
        folder,
        "where WARC files for S3 are written until they are uploaded; on a disk that outlives the worker",
    )

    @property
    def redis_urls(self) -> tuple[str, ...]:
        """The URLs in REDIS_URL: none, one for all shards, or one a shard."""
        return tuple((self.redis_url or "").split())

    @property
    def circuit(self) -> CircuitRules:
        """The rules of every circuit that has no rules of its own in the catalogue."""
        return CircuitRules(errors=self.circuit_errors)

    @property
    def dead_maxlen(self) -> int:
        """The number of dead letters at which leasing pauses."""
        return self.stream_maxlen

    def delay_of(self, spider: str) -> float:
        """Return the seconds that a spider keeps between its requests to one source, besides its rate."""
        return self.pages_delay if spider == "pages" else 0.0

    @property
    def of_shard(self) -> Config:
        """The settings of one of CRAWL_SHARDS: of what bounds the whole crawl it has an equal part."""
        if self.shards == 1:
            return self
        parts = {name: max(-(-getattr(self, name) // self.shards), least) for name, least in _DIVIDED.items()}
        return replace(self, **parts)

    @property
    def of_any_shard(self) -> Config:
        """The settings of a command, which any shard will do for."""
        return replace(self, shard=())

    @property
    def seen_capacity(self) -> int:
        """How many requests a first generation of the seen filter has, in each shard."""
        return max(10_000_000 // self.shards, 1_000)

    @property
    def user_agent(self) -> str:
        """The User-Agent sent to sites: name, version and, where set, how to reach the operator."""
        return f"crawlproject/{__version__}" + (f" (+{self.contact})" if self.contact else "")


def table(kind: type) -> Mapping[str, Mapping[str, Any]]:
    """Return what is known of each setting of a dataclass, by name."""
    return {f.metadata["name"]: f.metadata for f in fields(kind)}


SETTINGS = table(Config)
