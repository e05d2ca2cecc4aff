"""Reads the settings once, typed and validated: a bad value or an unknown name stops the start."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from crawlproject import plugins
from crawlproject.config.redis_url import cluster_address
from crawlproject.config.settings_table import SETTINGS, Config, table
from crawlproject.errors import ConfigError

T = TypeVar("T")
RESOLVER = "crawlproject.net.resolver.Resolver"  # of all connections to crawled sites
COMPONENTS = {  # of Scrapy's settings that name one class: those with which this project works, and no others
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "SCHEDULER": "crawlproject.frontier.scheduler.FrontierScheduler",
    "SCHEDULER_QUEUE_CLASS": "crawlproject.frontier.lease_queue.LeaseQueue",
    "DOWNLOADER": "crawlproject.net.downloader.Downloader",
    "DUPEFILTER_CLASS": "crawlproject.frontier.codec.SeenFilter",
}


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings given as environment variables, with every unknown `CRAWL_*` for `load` to report."""
    return {name: value for name, value in environ.items() if name in SETTINGS or name.startswith("CRAWL_")}


def load(settings: Mapping[str, Any]) -> Config:
    """Return the configuration in `settings` (Scrapy's, or any mapping); those of plug-ins are checked, too.

    Raises:
        ConfigError: a value is invalid or a `CRAWL_*` name unknown; the message names it and the remedy.

    """
    tables = [plugin.settings for plugin in plugins.found().values() if plugin.settings]
    known = SETTINGS.keys() | {name for one in tables for name in table(one)}
    for name in settings:
        if isinstance(name, str) and name.startswith("CRAWL_") and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            hint = f"did you mean {close[0]}?" if close else "the settings are listed in docs/settings.md"
            where = " (an environment variable)" if name in os.environ else ""
            raise ConfigError(f"{name}{where} is not a crawlproject setting: {hint}")
    _check_names_of_scrapy_redis(settings)
    for one in tables:
        read(one, settings)
    values = _values(Config, settings)
    if wrong := [number for number in values["shard"] if number >= values["shards"]]:
        raise ConfigError(
            f"CRAWL_SHARD={wrong[0]} is none of CRAWL_SHARDS={values['shards']}: they are counted from 0"
        )
    if values["pages_links"] == "warc" and not settings.get("CRAWL_PAGES_STORE"):
        raise ConfigError("CRAWL_PAGES_LINKS=warc needs CRAWL_PAGES_STORE, where pages go: set it, or take event")
    if values["redis_url"] and cluster_address(values["redis_url"]):
        values["namespace"] = _hash_tag(values["namespace"])
    config = Config(**values)
    if len(config.redis_urls) not in {0, 1, config.shards}:
        raise ConfigError(
            f"REDIS_URL has {len(config.redis_urls)} URLs and CRAWL_SHARDS is {config.shards}: name one URL for "
            "all shards, or one for each"
        )
    return config


def _check_names_of_scrapy_redis(settings: Mapping[str, Any]) -> None:
    if _is_set_to(settings, "SCHEDULER_FLUSH_ON_START", "true", "1"):
        raise ConfigError(
            "SCHEDULER_FLUSH_ON_START would wipe a frontier that other workers share; "
            "leave it out, and use another CRAWL_NAMESPACE to start afresh"
        )
    for name in ("REDIS_START_URLS_AS_SET", "REDIS_START_URLS_AS_ZSET"):
        if _is_set_to(settings, name, "true", "1"):
            raise ConfigError(
                f"{name} is not supported, seeds are read from a list: leave it out, and lpush seeds"
            )
    host, port = settings.get("REDIS_HOST"), settings.get("REDIS_PORT")
    if (host or port) and not settings.get("REDIS_URL"):
        raise ConfigError(
            "REDIS_HOST and REDIS_PORT are not read: set "
            f"REDIS_URL=redis://{host or 'localhost'}:{port or 6379} in their place"
        )
    pipelines = " ".join(map(str, settings.get("ITEM_PIPELINES") or ()))
    if not settings.get("REDIS_URL") and "scrapy_redis.pipelines" in pipelines:
        raise ConfigError(
            "scrapy_redis.pipelines.RedisPipeline needs REDIS_URL: without it, it would connect to localhost:6379 "
            "and not to the embedded Redis"
        )


def read(kind: type[T], settings: Mapping[str, Any]) -> T:
    """Return the settings of a plug-in, whose dataclass `kind` is.

    Raises:
        ConfigError: a value is invalid.

    """
    return kind(**_values(kind, settings))


def _values(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, setting in table(kind).items():
        value = settings.get(name, setting["default"])
        if value is None or (value == "" and setting["default"] is None):
            values[setting["field"]] = setting["default"]
            continue
        try:
            values[setting["field"]] = setting["parse"](value)
        except (TypeError, ValueError) as error:
            shown = re.sub(r"//.*@", "//***@", repr(value))  # no password in a message
            shown = re.sub(r"(password=)[^&'\"]*", r"\1***", shown)
            shown = "***" if setting["secret"] else shown
            raise ConfigError(f"{name}={shown} must be {error}") from None
    return values


def _hash_tag(namespace: str) -> str:
    """Return a namespace as the hash tag of its keys, so that a Redis Cluster has all of them in one slot.

    Raises:
        ConfigError: it has braces, but is not a hash tag.

    """
    name = namespace[1:-1] if namespace[0] + namespace[-1] == "{}" else namespace
    if not name or "{" in name or "}" in name:
        raise ConfigError(f"CRAWL_NAMESPACE={namespace} must be a name without braces on a Redis Cluster")
    return f"{{{name}}}"


def check_guarded(settings: Mapping[str, Any]) -> None:
    """Make sure that no Scrapy setting bypasses the address guard (net/resolver.py) or holds up requests.

    Raises:
        ConfigError: a setting does.

    """

    if _is_set_to(settings, "HTTPPROXY_ENABLED", "true", "1"):
        raise ConfigError("HTTPPROXY_ENABLED would have a proxy connect to unchecked addresses: leave it out")
    if settings.get("TWISTED_DNS_RESOLVER") != RESOLVER:
        raise ConfigError(f"TWISTED_DNS_RESOLVER must be {RESOLVER}, which guards the addresses: leave it out")
    if _is_set_to(settings, "TWISTED_REACTOR_ENABLED", "false", "0"):
        raise ConfigError("without TWISTED_REACTOR_ENABLED nothing would guard the addresses: leave it out")
    delay, each = settings.get("DOWNLOAD_DELAY"), settings.get("CONCURRENT_REQUESTS_PER_DOMAIN")
    slows = [] if _is_set_to(settings, "DOWNLOAD_DELAY", "none", "", "0", "0.0") else [f"DOWNLOAD_DELAY={delay}"]
    if _is_set_to(settings, "CONCURRENT_REQUESTS_PER_DOMAIN", "1"):  # as `scrapy startproject` writes it
        slows.append(f"CONCURRENT_REQUESTS_PER_DOMAIN={each}")
    if slows:
        raise ConfigError(
            f"{' and '.join(slows)} would delay requests beyond the moment when they may be sent: "
            f"leave {'them' if slows[1:] else 'it'} out, and set the rate of a source with scrapy rate"
        )
    if _is_set_to(settings, "AUTOTHROTTLE_ENABLED", "true", "1"):
        raise ConfigError(
            "AUTOTHROTTLE_ENABLED would delay requests beyond the moment when they may be sent: leave it out; "
            "sources that answer slowly are slowed down without it"
        )


def check_components(settings: Mapping[str, Any]) -> None:
    """Make sure that Scrapy runs with the classes of this project, and not with a part of them.

    Raises:
        ConfigError: it does not.

    """
    if "crawlproject.extensions.lease_keeper.LeaseKeeper" not in settings.get("EXTENSIONS_BASE", {}):
        raise ConfigError(
            "SCHEDULER and DUPEFILTER_CLASS are only a part of crawlproject: in settings.py, "
            'replace them with ADDONS = {"crawlproject.Addon": 0}'
        )
    if others := [name for name, path in COMPONENTS.items() if settings.get(name) != path]:
        values = ", ".join(str(settings.get(name)) for name in others)
        them = "them" if others[1:] else "it"
        raise ConfigError(f"{' and '.join(others)} ({values}) must be crawlproject's own: leave {them} out")


def check_contact(config: Config) -> None:
    """Make sure that sites can reach whoever crawls them.

    Raises:
        ConfigError: they cannot.

    """
    if config.contact is None:
        raise ConfigError(
            "CRAWL_CONTACT is not set: give the sites a way to reach you, "
            "such as -s CRAWL_CONTACT=https://example.org/crawler or mailto:crawler@example.org"
        )


def _is_set_to(settings: Mapping[str, Any], name: str, *words: str) -> bool:
    return str(settings.get(name)).strip().lower() in words


def project_dir() -> Path:
    """Return the project's folder: that of the nearest scrapy.cfg, else the current one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "scrapy.cfg").is_file()), here)
