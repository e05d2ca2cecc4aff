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
    analyses,
    choice,
    contact,
    flag,
    formats,
    media,
    namespace,
    nat64_prefixes,
    networks,
    number,
    opt_outs,
    optional,
    ports,
    servers,
    shard_numbers,
    share,
    sizes,
    storage,
    text,
    whole,
)
from crawlproject.config.redis_url import redis_url
from crawlproject.models import DEFAULT_FORMATS, OPT_OUTS, THUMBNAIL_FORMATS, THUMBNAIL_MODES


def setting(
    default: Any, parse: Parser, meaning: str, *, unit: str = "", name: str = "", secret: bool = False
) -> Any:
    """Return a field of a dataclass of settings; `parse` raises ValueError with what a value must be.

    Without a `name` the setting has that of the field, in capitals, behind `CRAWL_` or the `PREFIX` of the class.
    """
    about = {"name": name, "default": default, "parse": parse, "meaning": meaning, "unit": unit, "secret": secret}
    return field(metadata=about, repr=not secret)


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
        None,
        redis_url,
        "the Redis to share, also as `redis+sentinel://host:26379/service` or `redis+cluster://host:6379`, or "
        "several URLs separated by blanks, one a shard; none: an embedded one under `.crawl/`",
        name="REDIS_URL",
    )
    images_store: str = setting(
        ".crawl/thumbnails", storage, "where thumbnails go: a folder or `s3://bucket/prefix/`", name="IMAGES_STORE"
    )
    endpoint_url: str | None = setting(
        None, text, "endpoint of an S3-compatible store; none: Amazon's", name="AWS_ENDPOINT_URL"
    )
    max_idle: float = setting(
        0,
        number(0),
        "close after this many seconds without work in the whole crawl; 0: stay",
        unit="s",
        name="MAX_IDLE_TIME_BEFORE_CLOSE",
    )
    download_maxsize: int = setting(
        50_000_000, whole(1), "largest body downloaded", unit="bytes", name="DOWNLOAD_MAXSIZE"
    )
    download_timeout: float = setting(
        30, number(0, above=True), "longest time for one download", unit="s", name="DOWNLOAD_TIMEOUT"
    )
    sources: str | None = setting(None, text, "the catalogue of sources: a file (JSON, Parquet) or an HTTP URL")
    unknown_sources: str = setting(
        "minimum",
        choice("minimum", "refuse"),
        "sources that the catalogue does not name: crawled at the `minimum` rate, or `refuse`d",
    )
    source_trust: str = setting(
        "catalogue",
        choice("catalogue", "hosts"),
        "where a seed may name a source of the catalogue whose row has no `hosts`: on any host (`catalogue`), "
        "or only on those of its `source_url` (`hosts`)",
    )
    exclude: str | None = setting(
        None,
        text,
        "a file of domains and sources that get no requests, one a line; read again when it changes",
    )
    contact: str | None = setting(
        None, contact, "URL or mailto: in the User-Agent; required by `crawlproject crawl`"
    )
    namespace: str = setting(
        "crawl",
        namespace,
        "first part of every key; on a Redis Cluster in braces (`{crawl}`), as their hash tag",
    )
    shards: int = setting(
        1,
        whole(1, 256),
        "parts of the frontier, each with workers of its own, in one Redis, a Redis Cluster, or a Redis each: the "
        "same for the whole life of a crawl",
        unit="shards",
    )
    shard: tuple[int, ...] = setting(
        (),
        shard_numbers,
        "the shard that a worker serves, from 0, or several separated by commas, with a crawler each; none: the "
        "one with the fewest workers",
    )
    redis_wait: str = setting(
        "forwarded",
        choice("forwarded", "all"),
        "writes that must reach a replica, where a master has one, before the crawl continues: those that forward "
        "work to other shards (`forwarded`), or `all`",
    )
    max_retries: int = setting(1, whole(0, 100), "further attempts after a temporary failure", unit="attempts")
    retry_delay: float = setting(
        10, number(0, above=True), "first back-off; it doubles with every retry", unit="s"
    )
    heartbeat_timeout: float = setting(
        30,
        number(1),
        "a worker that is silent for this long loses its leases",
        unit="s",
    )
    high_water: int = setting(
        1_000_000,
        whole(4),
        "most requests in the frontier; beyond it, seeds stay in the list, and each source queues at most 8 found "
        "links",
        unit="requests",
        name="CRAWL_FRONTIER_HIGH_WATER",
    )
    overflow_maxlen: int = setting(
        1_000_000,
        whole(1),
        "most waiting requests in Redis; when full, seeds stay in the list and links are rejected. Links of one "
        "source are rejected once it holds a quarter of the room that the others leave",
        unit="requests",
    )
    pages_budget_max: int = setting(
        1_000_000,
        whole(0, _MOST_LINKS),
        "most links found on pages that a source admits in all, a quarter of them poor ones: 1,000, and 4 more "
        "for each good page of it (fetched, indexable, with new content), up to this number; 0: no budget at all",
        unit="links",
    )
    stream_maxlen: int = setting(
        1_000_000,
        whole(1),
        "events kept in each stream, and dead letters; while more events are unread, or there are as many dead "
        "letters, leasing pauses; dead letters of forbidden images, and of links found on pages, have the same "
        "limit of their own and pause nothing",
        unit="events",
    )
    events_unread: str = setting(
        "keep",
        choice("keep", "drop"),
        "`drop`: beyond `CRAWL_STREAM_MAXLEN` the oldest events of a stream go, read or not, and nothing pauses",
    )
    max_pixels: int = setting(100_000_000, whole(1), "larger images are not decoded", unit="pixels")
    formats: tuple[str, ...] = setting(
        DEFAULT_FORMATS,
        formats,
        "formats of images that are read; all others are unreadable",
    )
    pages_images: str = setting(
        "licensed",
        choice("licensed", "all", "none"),
        "images found on pages that the spider `images` gets: those with an open licence (`licensed`), `all`, "
        "or `none`",
    )
    pages_links: str = setting(
        "none",
        choice("none", "event", "warc"),
        "links of pages, with their text: not reported, in the `event`, or with the page in `CRAWL_PAGES_STORE`",
    )
    pages_media: tuple[str, ...] = setting(
        (),
        media,
        "`audio`, `video` or both: openly licensed ones that pages embed are reported, not downloaded",
    )
    pages_revisit: float = setting(
        0,
        number(0, 30 * 86_400),
        "home pages, seeds and sitemaps, 8 of a source at most, are revisited after this time; later the "
        "less they change; 0: never",
        unit="s",
    )
    thumbnail_sizes: tuple[int, ...] = setting(
        (640,),
        sizes,
        "one or several sizes of thumbnails, 16 to 2048; the first one is the event's `thumbnail`. A size is the "
        "longest side, unless `CRAWL_THUMBNAIL_MODE` says otherwise. Smaller images keep their size, unless "
        "`CRAWL_THUMBNAIL_ENLARGE` is set",
        unit="pixels",
    )
    thumbnail_mode: str = setting(
        "keep_ratio_largest",
        choice(*THUMBNAIL_MODES),
        "measure of the size: " + ", ".join(f"{of} (`{name}`)" for name, of in THUMBNAIL_MODES.items()),
    )
    thumbnail_enlarge: bool = setting(False, flag, "enlarge smaller images to the size")
    thumbnail_format: str = setting(
        "JPEG",
        choice(*THUMBNAIL_FORMATS),
        "format of thumbnails, `JPEG` or `WebP`; their names end with `.jpg` or `.webp`",
    )
    thumbnail_quality: int = setting(85, whole(1, 95), "quality of thumbnails, in either format", unit="1 to 95")
    keep_originals: str | None = setting(
        None,
        optional(storage),
        "where the images themselves go: a folder or `s3://bucket/prefix/`; none: they are not kept",
    )
    analyses: tuple[str, ...] = setting(
        (),
        analyses,
        "functions that analyse each image, as `module:function`; their results go into its event",
    )
    decode_processes: int = setting(
        2,
        whole(1, 64),
        "images that a worker decodes at the same time, each in its own process",
        unit="processes",
    )
    decode_timeout: float = setting(
        20,
        number(0, above=True),
        "an image that takes longer to decode is unreadable",
        unit="s",
    )
    opt_outs: tuple[str, ...] = setting(
        tuple(OPT_OUTS),
        opt_outs,
        "opt-outs that forbid keeping anything of an image; the others are recorded in its event",
    )
    circuit_errors: float = setting(
        0.1,
        share,
        "share of errors above which it opens",
        unit="0 to 1",
    )
    strain: bool = setting(
        True,
        flag,
        "latency back-off: slow down at five times the source's usual latency, and over 1 s more",
    )
    pages_delay: float = setting(
        70,
        number(0, 86_400),
        "between two requests of the spider `pages` to one source, besides the source's rate; 0: only that",
        unit="s",
    )
    allow_networks: tuple[Network, ...] = setting(
        (), networks, "private networks that may be crawled, on every port, as in `127.0.0.0/8,::1`"
    )
    deny_networks: tuple[Network, ...] = setting(
        (),
        networks,
        "networks that are never connected to, also where `CRAWL_ALLOW_NETWORKS` opens them",
    )
    nat64_prefixes: tuple[IPv6Network, ...] = setting(
        (),
        nat64_prefixes,
        "NAT64 prefixes of the workers' network: its addresses are judged by the IPv4 addresses in them",
    )
    allow_ports: tuple[int, ...] = setting((), ports, "ports that may be crawled besides 80 and 443", unit="ports")
    dns_servers: tuple[str, ...] = setting(
        (), servers, "name servers, as `address` or `address:port`; none: the system's"
    )
    tls_failures: str = setting(
        "refuse",
        choice("refuse", "record"),
        "a site with an invalid certificate: `refuse` it, or crawl it and `record` that in the event",
    )
    shutdown_grace: float = setting(
        30, number(0), "time that requests in flight get to finish at a stop", unit="s"
    )
    log_format: str = setting(
        "text",
        choice("text", "json"),
        "format of the log: `text` for people, or `json`, one object a line",
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
    """Return what is known of each setting of a dataclass, its `field` included, by name."""
    prefix = getattr(kind, "PREFIX", "CRAWL_")
    return {f.metadata["name"] or prefix + f.name.upper(): {**f.metadata, "field": f.name} for f in fields(kind)}


SETTINGS = table(Config)
