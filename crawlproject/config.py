"""The settings of this project: read once, typed, validated. A bad value or an unknown name stops the start.

Each can be given as a Scrapy setting (`-s NAME=value`, settings.py) and as the environment variable of its
name; `-s` wins. Lists are comma-separated there, and an empty value is an empty list. Durations are seconds,
sizes bytes, rates requests a second.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from crawlproject import __version__
from crawlproject.errors import ConfigError
from crawlproject.records import OPT_OUTS

MINIMUM_RATE = 0.2  # rps: of the smallest sources, and of those nobody has told us the size of

RESOLVER = "crawlproject.frontier.names.Names"  # of all connections to crawled sites

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Parser = Callable[[Any], Any]


def _whole(low: int, high: int | None = None) -> Parser:
    """Return a parser for whole numbers from `low` to `high`."""

    def parse(value: Any) -> int:
        try:
            number = int(str(value).strip().replace("_", ""))
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or number < low or (high is not None and number > high):
            raise ValueError(f"a whole number from {low}" + (f" to {high}" if high is not None else ""))
        return number

    return parse


def _number(low: float, *, above: bool = False) -> Parser:
    """Return a parser for finite numbers from `low`, or only above it."""

    def parse(value: Any) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < low or (above and number == low):
            raise ValueError(f"a number {'above' if above else 'from'} {low:g}")
        return number

    return parse


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in {"true", "false", "1", "0", "yes", "no"}:
        raise ValueError("True or False")
    return text in {"true", "1", "yes"}


def _choice(*allowed: str) -> Parser:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(repr(name) for name in allowed))
        return str(value)

    return parse


def _text(value: Any) -> str | None:
    return str(value).strip() or None


def _items(value: Any) -> list[str]:
    parts: Iterable[Any] = value.split(",") if isinstance(value, str) else value
    return [text for part in parts if (text := str(part).strip())]


def _networks(value: Any) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(item) for item in _items(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"networks such as 127.0.0.0/8 ({error})") from None


def _ports(value: Any) -> tuple[int, ...]:
    try:
        return tuple(_whole(1, 65535)(item) for item in _items(value))
    except (TypeError, ValueError):
        raise ValueError("ports from 1 to 65535, separated by commas") from None


def _servers(value: Any) -> tuple[str, ...]:
    try:
        servers = tuple(_items(value))
        for server in servers:
            try:
                ipaddress.ip_address(server)
            except ValueError:
                ipaddress.ip_address(_split(f"//{server}").hostname or "")
    except (TypeError, ValueError):
        raise ValueError(
            "addresses such as 9.9.9.9, 127.0.0.1:5353 or [2620:fe::fe]:53, separated by commas"
        ) from None
    return servers


def _brokers(value: Any) -> tuple[str, ...]:
    try:
        brokers = tuple(_items(value))
    except TypeError:
        brokers = ("",)
    if not all(re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}", broker) for broker in brokers):
        raise ValueError("brokers such as kafka1.example:9092, separated by commas")
    return brokers


# What the promises of docs/kafka.md rest on, and what has a setting or an option of a command.
_NOT_OF_KAFKA = {
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store",
    "enable.idempotence", "acks", "request.required.acks", "transactional.id", "enable.partition.eof",
    "message.timeout.ms", "delivery.timeout.ms",
}  # fmt: skip


def _kafka_options(value: Any) -> tuple[tuple[str, str], ...]:
    try:
        options = dict(json.loads(value or "{}") if isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        options = {"": None}
    if not all(isinstance(name, str) and isinstance(o, str | int | float) for name, o in options.items()):
        raise ValueError('a JSON object such as {"security.protocol": "SSL"}, of texts, numbers, true and false')
    if taken := sorted(_NOT_OF_KAFKA & options.keys()):
        raise ValueError(f"a JSON object without {', '.join(taken)}: our promises or other settings say that")
    texts = {True: "true", False: "false"}
    return tuple((name, texts[o] if isinstance(o, bool) else str(o)) for name, o in options.items())


def _address(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(str(value).strip()))
    except ValueError:
        raise ValueError("an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::") from None


def _opt_outs(value: Any) -> tuple[str, ...]:
    try:
        names = tuple(name.lower() for name in _items(value))
    except TypeError:
        names = (repr(value),)
    if unknown := [name for name in names if name not in OPT_OUTS]:
        raise ValueError(f"opt-outs, separated by commas, of {', '.join(OPT_OUTS)}; not {', '.join(unknown)}")
    return names


def _split(url: str) -> SplitResult:
    """Return the parts of `url`; empty ones when it makes no sense."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises, too
    except ValueError:
        return urlsplit("")
    return parts


class SentinelAddress(NamedTuple):
    """What a `redis+sentinel://` or `rediss+sentinel://` URL says: which sentinels to ask, and for whom."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    db: int
    credentials: Mapping[str, str]  # username, password: of the Redis servers
    sentinel_credentials: Mapping[str, str]  # the same of the sentinels, where they want some
    tls: Mapping[str, Any]  # redis-py's options of TLS, to servers and sentinels; none: no TLS


_SENTINEL, _SENTINEL_TLS = "redis+sentinel://", "rediss+sentinel://"
_SENTINEL_FORM = f"{_SENTINEL}[user:password@]host:26379[,host2:26379]/service[/db][?sentinel_password=...]"


def sentinel_address(url: str) -> SentinelAddress | None:
    """Return what a `redis+sentinel://` or `rediss+sentinel://` URL says, None for a URL of another kind.

    Raises:
        ValueError: it is one, and makes no sense; the message names no secret.

    """
    if not url.startswith((_SENTINEL, _SENTINEL_TLS)):
        return None
    place, _, query = url.partition("://")[2].partition("?")
    login, at, place = place.rpartition("@")
    user, colon, password = login.partition(":")
    if at and not colon:
        raise ValueError(f"{_SENTINEL_FORM}, with user:password or :password before the @")
    hosts, *path = place.split("/")
    found = [re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?", host) for host in hosts.split(",")]
    sentinels = tuple((match[1].strip("[]"), int(match[2] or 26379)) for match in found if match)
    if len(sentinels) < len(found) or any(not 0 < port < 65536 for _, port in sentinels):
        raise ValueError(f"{_SENTINEL_FORM}, with each host as name, name:port or [address]:port")
    service, db = ([*path, "", ""])[:2]
    if not service or len(path) > 2 or not re.fullmatch(r"\d{0,4}", db):
        raise ValueError(f"{_SENTINEL_FORM}, with the name of the service and a whole number as db")
    options = dict(parse_qsl(query, keep_blank_values=True))
    tls = _tls_options(options) if url.startswith(_SENTINEL_TLS) else {}
    if options.keys() - tls.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError(f"{_SENTINEL_FORM}, with sentinel_username and sentinel_password as its only options")
    given = {"username": unquote(user), "password": unquote(password)}
    return SentinelAddress(
        sentinels,
        unquote(service),
        int(db or 0),
        {name: value for name, value in given.items() if value},
        {name[len("sentinel_") :]: value for name, value in options.items() if value and name not in tls},
        tls,
    )


def _tls_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return those options of a URL that say how TLS is spoken, as redis-py takes them."""
    tls: dict[str, Any] = {"ssl": True}
    for name, value in options.items():
        if name in {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"} and value:
            tls[name] = value
        elif name == "ssl_check_hostname" and value in {"true", "false"}:
            tls[name] = value == "true"
        elif name.startswith("ssl_"):
            raise ValueError(
                f"{_SENTINEL_TLS}host/service, with the files ssl_ca_certs, ssl_certfile and ssl_keyfile, and "
                "ssl_check_hostname=true or false, as its only options for TLS"
            )
    return tls


def _redis_url(value: Any) -> str | None:
    url = _text(value)
    if url is None or sentinel_address(url):
        return url
    if not (_split(url).scheme and url.startswith(("redis://", "rediss://", "unix://"))):
        raise ValueError(
            "a URL that begins with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"
        )
    return url


def _contact(value: Any) -> str | None:
    url = _text(value)
    if url is None:
        return None
    parts = _split(url)
    web = parts.scheme in {"http", "https"} and parts.hostname
    mail = parts.scheme == "mailto" and "@" in parts.path
    if not (web or mail) or re.search(r"[\s()<>]", url):
        raise ValueError("a URL that begins with http://, https:// or mailto:")
    return url


def _namespace(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.{}-]{1,64}", str(value)):
        raise ValueError("1 to 64 of letters, digits and _.-{}")
    return str(value)


def _store(value: Any) -> str:
    uri = str(value).strip()
    scheme = uri.partition("://")[0].lower() if "://" in uri else ""
    if not uri or scheme not in {"", "file", "s3"}:
        raise ValueError("a folder or s3://bucket/prefix/")
    if scheme == "s3" and not re.fullmatch(r"s3://[^/]+/(.*/)?", uri):
        raise ValueError("s3://bucket/ or s3://bucket/prefix/, with the slash at its end")
    return uri


def _share(value: Any) -> float:
    number: float = _number(0)(value)
    if number > 1:
        raise ValueError("a number from 0 to 1")
    return number


@dataclass(frozen=True, slots=True)
class CircuitRules:
    """When a source's circuit opens, for how long, and when it halts; durations in seconds.

    It opens when the sliding `window` holds more than `samples` results and the part of errors among them is
    above `errors`, for `open` seconds, twice as long each time that one of `probes` fails, up to `open_max`;
    after `halt_after` errors in a row it halts.
    """

    window: float = 60.0
    samples: int = 5
    errors: float = 0.1
    open: float = 60.0
    open_max: float = 3600.0
    probes: int = 3
    halt_after: int = 50

    PARSERS: ClassVar[Mapping[str, Parser]] = {
        "window": _number(1),
        "samples": _whole(0),
        "errors": _share,
        "open": _number(0, above=True),
        "open_max": _number(0, above=True),
        "probes": _whole(1, 1000),
        "halt_after": _whole(1),
    }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated rules among `values`, by name.

        Raises:
            ValueError: a name or a value makes no sense; the message names it.

        """
        parsed = {}
        for name, value in values.items():
            if name not in cls.PARSERS:
                raise ValueError(f"{name} is no rule of a circuit, those are {', '.join(cls.PARSERS)}")
            try:
                parsed[name] = cls.PARSERS[name](value)
            except ValueError as error:
                raise ValueError(f"{name}={value!r} must be {error}") from None
        return parsed

    @staticmethod
    def pack(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return rules as the scripts read them: durations in microseconds."""
        seconds = ("window", "open", "open_max")
        return {name: int(value * 1_000_000) if name in seconds else value for name, value in values.items()}

    def packed(self) -> dict[str, Any]:
        """Return all rules as the scripts read them."""
        return self.pack(asdict(self))


def _setting(name: str, default: Any, parse: Parser, meaning: str, *, unit: str = "", secret: bool = False) -> Any:
    metadata = {
        "name": name, "default": default, "parse": parse, "meaning": meaning, "unit": unit, "secret": secret
    }  # fmt: skip
    return field(metadata=metadata, repr=not secret)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings in force; the metadata of each field holds its name, default and meaning."""

    redis_url: str | None = _setting(
        "REDIS_URL",
        None,
        _redis_url,
        "the Redis to share, also as `redis+sentinel://host:26379/service`; none: an embedded one under `.crawl/`",
    )
    images_store: str = _setting(
        "IMAGES_STORE", ".crawl/thumbnails", _store, "where thumbnails go: a folder or `s3://bucket/prefix/`"
    )
    endpoint_url: str | None = _setting(
        "AWS_ENDPOINT_URL", None, _text, "endpoint of an S3-compatible store; none: Amazon's"
    )
    max_idle: float = _setting(
        "MAX_IDLE_TIME_BEFORE_CLOSE",
        0,
        _number(0),
        "close after so many seconds without any work anywhere; 0: stay",
        unit="s",
    )
    download_maxsize: int = _setting(
        "DOWNLOAD_MAXSIZE", 50_000_000, _whole(1), "largest body fetched", unit="bytes"
    )
    download_timeout: float = _setting(
        "DOWNLOAD_TIMEOUT", 30, _number(0, above=True), "longest that one fetch may take", unit="s"
    )
    sources: str | None = _setting(
        "CRAWL_SOURCES", None, _text, "the catalogue of sources: a JSON file or an HTTP URL"
    )
    unknown_sources: str = _setting(
        "CRAWL_UNKNOWN_SOURCES",
        "minimum",
        _choice("minimum", "refuse"),
        "sources that the catalogue does not name: crawled at the `minimum` rate, or `refuse`d",
    )
    contact: str | None = _setting(
        "CRAWL_CONTACT", None, _contact, "URL or mailto: in the User-Agent; required by `scrapy crawl`"
    )
    namespace: str = _setting(
        "CRAWL_NAMESPACE",
        "crawl",
        _namespace,
        "first part of every key; one in braces (`{a}`) keeps all keys in one slot of a Redis Cluster",
    )
    max_retries: int = _setting(
        "CRAWL_MAX_RETRIES", 1, _whole(0, 100), "further attempts after a failure that may pass", unit="attempts"
    )
    retry_delay: float = _setting(
        "CRAWL_RETRY_DELAY", 10, _number(0, above=True), "first back-off; it doubles with every retry", unit="s"
    )
    retry_delay_max: float = _setting(
        "CRAWL_RETRY_DELAY_MAX", 3600, _number(0, above=True), "longest back-off, Retry-After included", unit="s"
    )
    max_deliveries: int = _setting(
        "CRAWL_MAX_DELIVERIES",
        3,
        _whole(1, 100),
        "a request lost so often with its worker, or by trouble of our own, is a dead letter",
        unit="deliveries",
    )
    heartbeat_timeout: float = _setting(
        "CRAWL_HEARTBEAT_TIMEOUT", 30, _number(1), "a worker silent for so long loses its leases", unit="s"
    )
    high_water: int = _setting(
        "CRAWL_FRONTIER_HIGH_WATER",
        1_000_000,
        _whole(4),
        "requests in the frontier at most; a source holds at most a quarter of it",
        unit="requests",
    )
    dead_maxlen: int = _setting(
        "CRAWL_DEAD_MAXLEN", 1_000_000, _whole(1), "dead letters at most: then leasing pauses", unit="dead letters"
    )
    stream_maxlen: int = _setting(
        "CRAWL_STREAM_MAXLEN",
        1_000_000,
        _whole(1),
        "events kept in each stream; so many unread by a reader: leasing pauses",
        unit="events",
    )
    max_pixels: int = _setting(
        "CRAWL_MAX_PIXELS", 100_000_000, _whole(1), "larger pictures are not decoded", unit="pixels"
    )
    thumbnail_quality: int = _setting(
        "CRAWL_THUMBNAIL_QUALITY", 85, _whole(1, 95), "JPEG quality of thumbnails", unit="1 to 95"
    )
    decode_processes: int = _setting(
        "CRAWL_DECODE_PROCESSES",
        2,
        _whole(1, 64),
        "pictures that a worker decodes at the same time, each in a process of its own",
        unit="processes",
    )
    decode_timeout: float = _setting(
        "CRAWL_DECODE_TIMEOUT",
        20,
        _number(0, above=True),
        "a picture that takes longer to decode is unreadable",
        unit="s",
    )
    opt_outs: tuple[str, ...] = _setting(
        "CRAWL_OPT_OUTS",
        tuple(OPT_OUTS),
        _opt_outs,
        "opt-outs that forbid keeping anything of a picture; the others are recorded in its event",
    )
    circuit_window: float = _setting(
        "CRAWL_CIRCUIT_WINDOW", 60, CircuitRules.PARSERS["window"], "the sliding window of a circuit", unit="s"
    )
    circuit_samples: int = _setting(
        "CRAWL_CIRCUIT_SAMPLES",
        5,
        CircuitRules.PARSERS["samples"],
        "with no more results in it, none opens",
        unit="results",
    )
    circuit_errors: float = _setting(
        "CRAWL_CIRCUIT_ERRORS",
        0.1,
        CircuitRules.PARSERS["errors"],
        "part of errors above which it opens",
        unit="0 to 1",
    )
    circuit_open: float = _setting(
        "CRAWL_CIRCUIT_OPEN",
        60,
        CircuitRules.PARSERS["open"],
        "how long it stays open; doubled each time that a probe fails",
        unit="s",
    )
    circuit_open_max: float = _setting(
        "CRAWL_CIRCUIT_OPEN_MAX", 3600, CircuitRules.PARSERS["open_max"], "how long at most", unit="s"
    )
    circuit_probes: int = _setting(
        "CRAWL_CIRCUIT_PROBES",
        3,
        CircuitRules.PARSERS["probes"],
        "requests that decide whether it closes",
        unit="requests",
    )
    circuit_halt_after: int = _setting(
        "CRAWL_CIRCUIT_HALT_AFTER",
        50,
        CircuitRules.PARSERS["halt_after"],
        "errors in a row that halt a source until an operator resumes it",
        unit="errors",
    )
    strain: bool = _setting(
        "CRAWL_STRAIN", True, _flag, "slow down where answers take five times as long as a rule, and a second more"
    )
    robots_delay_max: float = _setting(
        "CRAWL_ROBOTS_DELAY_MAX",
        60,
        _number(0, above=True),
        "longest delay between requests that a robots.txt may ask for",
        unit="s",
    )
    robots_delay_over: str = _setting(
        "CRAWL_ROBOTS_DELAY_OVER",
        "clamp",
        _choice("clamp", "skip"),
        "one that asks for more: `clamp` it to that, or `skip` the host",
    )
    close_when_halted: bool = _setting(
        "CRAWL_CLOSE_WHEN_HALTED", False, _flag, "close though halted sources have work"
    )
    allow_networks: tuple[Network, ...] = _setting(
        "CRAWL_ALLOW_NETWORKS", (), _networks, "private networks that may be crawled, on every port"
    )
    allow_ports: tuple[int, ...] = _setting(
        "CRAWL_ALLOW_PORTS", (), _ports, "ports that may be crawled beside 80 and 443", unit="ports"
    )
    dns_servers: tuple[str, ...] = _setting(
        "CRAWL_DNS_SERVERS", (), _servers, "name servers, as `address` or `address:port`; none: the system's"
    )
    tls_failures: str = _setting(
        "CRAWL_TLS_FAILURES",
        "refuse",
        _choice("refuse", "record"),
        "a site whose certificate is not valid: `refuse` it, or go on and `record` that in the event",
    )
    shutdown_grace: float = _setting(
        "CRAWL_SHUTDOWN_GRACE", 30, _number(0), "time that requests in flight get at a stop", unit="s"
    )
    log_format: str = _setting(
        "CRAWL_LOG_FORMAT",
        "text",
        _choice("text", "json"),
        "the log: `text` for people, or a `json` object a line",
    )
    monitor_file: str | None = _setting(
        "CRAWL_MONITOR_FILE", None, _text, "file of the monitor's lines, one each 5 s; none: they go to the log"
    )
    metrics_port: int | None = _setting(
        "CRAWL_METRICS_PORT",
        None,
        _whole(1, 65535),
        "port of `/metrics`, each process its own; none: 9410 for `scrapy monitor`, and none for workers",
        unit="port",
    )
    metrics_address: str = _setting(
        "CRAWL_METRICS_ADDRESS", "127.0.0.1", _address, "address that `/metrics` is bound to"
    )
    dashboard_port: int = _setting(
        "CRAWL_DASHBOARD_PORT",
        9411,
        _whole(0, 65535),
        "port of `scrapy monitor`'s dashboard; 0: none",
        unit="port",
    )
    dashboard_address: str = _setting(
        "CRAWL_DASHBOARD_ADDRESS",
        "127.0.0.1",
        _address,
        "address that the dashboard is bound to; any other than a loopback one needs a password",
    )
    dashboard_password: str | None = _setting(
        "CRAWL_DASHBOARD_PASSWORD",
        None,
        _text,
        "what the dashboard asks for; none: it is open to whoever can use this machine; never shown",
        secret=True,
    )

    kafka_brokers: tuple[str, ...] = _setting(
        "CRAWL_KAFKA_BROKERS", (), _brokers, "where Kafka is, as `host:port`, for `--kafka` of `feed` and `events`"
    )
    kafka_options: tuple[tuple[str, str], ...] = _setting(
        "CRAWL_KAFKA_OPTIONS",
        (),
        _kafka_options,
        "further options of librdkafka, a JSON object (docs/kafka.md); never shown",
        secret=True,
    )

    @property
    def circuit(self) -> CircuitRules:
        """The rules of every circuit for which the catalogue has no others."""
        return CircuitRules(**{name: getattr(self, f"circuit_{name}") for name in CircuitRules.PARSERS})

    @property
    def user_agent(self) -> str:
        """Who we are, to the sites: name, version and, where set, how to reach the operator."""
        return f"crawlproject/{__version__}" + (f" (+{self.contact})" if self.contact else "")


SETTINGS: Mapping[str, Mapping[str, Any]] = {f.metadata["name"]: f.metadata for f in fields(Config)}


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings given as environment variables: ours, and every unknown `CRAWL_*` for `load`."""
    return {name: value for name, value in environ.items() if name in SETTINGS or name.startswith("CRAWL_")}


def load(settings: Mapping[str, Any]) -> Config:
    """Return the configuration that `settings` (Scrapy's, or any mapping) spell out.

    Raises:
        ConfigError: a value is out of range or a `CRAWL_*` name unknown; the message names it and the remedy.

    """
    for name in settings:
        if isinstance(name, str) and name.startswith("CRAWL_") and name not in SETTINGS:
            close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.75)
            hint = f"did you mean {close[0]}?" if close else "the settings are listed in docs/settings.md"
            raise ConfigError(f"{name} is no setting of crawlproject: {hint}")
    if str(settings.get("SCHEDULER_FLUSH_ON_START", False)).strip().lower() in {"true", "1"}:
        raise ConfigError(
            "SCHEDULER_FLUSH_ON_START would wipe a frontier that other workers share; "
            "leave it out, and use another CRAWL_NAMESPACE to start afresh"
        )
    values: dict[str, Any] = {}
    for f in fields(Config):
        name, default, parse = f.metadata["name"], f.metadata["default"], f.metadata["parse"]
        value = settings.get(name, default)
        if value is None or (value == "" and default is None):
            values[f.name] = default
            continue
        try:
            values[f.name] = parse(value)
        except (TypeError, ValueError) as error:
            shown = re.sub(r"//.*@", "//***@", repr(value))  # no password in a message
            shown = re.sub(r"(password=)[^&'\"]*", r"\1***", shown)
            shown = "***" if f.metadata["secret"] else shown
            raise ConfigError(f"{name}={shown} must be {error}") from None
    return Config(**values)


def check_guarded(settings: Mapping[str, Any]) -> None:
    """Make sure that nothing in Scrapy's `settings` leads past the address guard (frontier/names.py).

    Raises:
        ConfigError: something does.

    """

    def says(name: str, *words: str) -> bool:
        return str(settings.get(name)).strip().lower() in words

    if says("HTTPPROXY_ENABLED", "true", "1"):
        raise ConfigError(
            "HTTPPROXY_ENABLED would have a proxy connect to addresses that the guard has not seen: leave it out"
        )
    if settings.get("TWISTED_DNS_RESOLVER") != RESOLVER:
        raise ConfigError(f"TWISTED_DNS_RESOLVER must be {RESOLVER}, which guards the addresses: leave it out")
    if says("TWISTED_REACTOR_ENABLED", "false", "0"):
        raise ConfigError("without TWISTED_REACTOR_ENABLED nothing would guard the addresses: leave it out")


def project_dir() -> Path:
    """Return the folder of the project we run in: that of the nearest scrapy.cfg, else the present one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "scrapy.cfg").is_file()), here)
