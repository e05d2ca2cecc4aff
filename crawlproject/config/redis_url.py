"""`REDIS_URL`: a server, a socket, sentinels that know the server, nodes of a Redis Cluster; or several URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from crawlproject.config.parsers import split, text


class SentinelAddress(NamedTuple):
    """The parts of a `redis+sentinel://` or `rediss+sentinel://` URL: sentinels, service, credentials, options."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    db: int
    credentials: Mapping[str, str]  # username and password for the Redis servers
    sentinel_credentials: Mapping[str, str]  # the same for the sentinels, if they need any
    tls: Mapping[str, Any]  # redis-py's TLS options, for servers and sentinels; empty: no TLS


class ClusterAddress(NamedTuple):
    """The parts of a `redis+cluster://` or `rediss+cluster://` URL."""

    nodes: tuple[tuple[str, int], ...]  # some of the cluster's; they know the others
    credentials: Mapping[str, str]  # username and password, the same for all nodes
    tls: Mapping[str, Any]  # redis-py's TLS options; empty: no TLS


_SERVERS = ("redis://", "rediss://", "unix://")
_SENTINEL, _SENTINEL_TLS = "redis+sentinel://", "rediss+sentinel://"
_SENTINEL_FORM = f"{_SENTINEL}[user:password@]host:26379[,host2:26379]/service[/db][?sentinel_password=...]"
_CLUSTER, _CLUSTER_TLS = "redis+cluster://", "rediss+cluster://"
_CLUSTER_FORM = f"{_CLUSTER}[user:password@]host:6379[,host2:6379]"


def sentinel_address(url: str) -> SentinelAddress | None:
    """Parse a `redis+sentinel://` or `rediss+sentinel://` URL; None for a URL of another kind.

    Raises:
        ValueError: it is such a URL, and invalid; the message contains no secret.

    """
    if not url.startswith((_SENTINEL, _SENTINEL_TLS)):
        return None
    place, _, query = url.partition("://")[2].partition("?")
    credentials, place = _login(place, _SENTINEL_FORM)
    hosts, *path = place.split("/")
    sentinels = _addresses(hosts, 26379, _SENTINEL_FORM)
    service, db = ([*path, "", ""])[:2]
    if not service or len(path) > 2 or not re.fullmatch(r"\d{0,4}", db):
        raise ValueError(f"{_SENTINEL_FORM}, with the name of the service and a whole number as db")
    options = dict(parse_qsl(query, keep_blank_values=True))
    tls = _tls_options(options, f"{_SENTINEL_TLS}host/service") if url.startswith(_SENTINEL_TLS) else {}
    if options.keys() - tls.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError(f"{_SENTINEL_FORM}, with sentinel_username and sentinel_password as its only options")
    return SentinelAddress(
        sentinels,
        unquote(service),
        int(db or 0),
        credentials,
        {name[len("sentinel_") :]: value for name, value in options.items() if value and name not in tls},
        tls,
    )


def cluster_address(url: str) -> ClusterAddress | None:
    """Parse a `redis+cluster://` or `rediss+cluster://` URL; None for a URL of another kind.

    Raises:
        ValueError: it is such a URL, and invalid; the message contains no secret.

    """
    if not url.startswith((_CLUSTER, _CLUSTER_TLS)):
        return None
    place, _, query = url.partition("://")[2].partition("?")
    credentials, place = _login(place, _CLUSTER_FORM)
    hosts, _, path = place.partition("/")
    nodes = _addresses(hosts, 6379, _CLUSTER_FORM)
    if path not in {"", "0"}:
        raise ValueError(f"{_CLUSTER_FORM}, without a db: a Redis Cluster has db 0 alone")
    options = dict(parse_qsl(query, keep_blank_values=True))
    tls = _tls_options(options, f"{_CLUSTER_TLS}host") if url.startswith(_CLUSTER_TLS) else {}
    if options.keys() - tls.keys():
        raise ValueError(f"{_CLUSTER_FORM}, without options, unless for TLS ({_CLUSTER_TLS})")
    return ClusterAddress(nodes, credentials, tls)


def _login(place: str, form: str) -> tuple[dict[str, str], str]:
    """Return the username and password before the last @ of `place`, as far as there are any, and the rest."""
    login, at, place = place.rpartition("@")
    user, colon, password = login.partition(":")
    if at and not colon:
        raise ValueError(f"{form}, with user:password or :password before the @")
    given = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in given.items() if value}, place


def _addresses(hosts: str, port: int, form: str) -> tuple[tuple[str, int], ...]:
    """Return the addresses in a list with commas; `port`: of those that name none."""
    found = [re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?", host) for host in hosts.split(",")]
    addresses = tuple((match[1].strip("[]"), int(match[2] or port)) for match in found if match)
    if len(addresses) < len(found) or any(not 0 < port < 65536 for _, port in addresses):
        raise ValueError(f"{form}, with each host as name, name:port or [address]:port")
    return addresses


def _tls_options(options: Mapping[str, str], form: str) -> dict[str, Any]:
    """Return the TLS options of a URL, as redis-py takes them."""
    tls: dict[str, Any] = {"ssl": True}
    for name, value in options.items():
        if name in {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"} and value:
            tls[name] = value
        elif name == "ssl_check_hostname" and value in {"true", "false"}:
            tls[name] = value == "true"
        elif name.startswith("ssl_"):
            raise ValueError(
                f"{form}, with the files ssl_ca_certs, ssl_certfile and ssl_keyfile, and "
                "ssl_check_hostname=true or false, as its only options for TLS"
            )
    if "ssl_keyfile" in tls and "ssl_certfile" not in tls:
        raise ValueError(f"{form}, with ssl_certfile beside ssl_keyfile, the certificate that the key is of")
    return tls


def redis_url(value: Any) -> str | None:
    urls = (text(value) or "").split()
    for url in urls:
        if cluster_address(url):
            if len(urls) > 1:
                raise ValueError("a URL of one Redis Cluster, or several of servers and sentinels, one a shard")
        elif not (sentinel_address(url) or (split(url).scheme and url.startswith(_SERVERS))):
            raise ValueError(
                "a URL that begins with redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, "
                "redis+cluster:// or rediss+cluster://; or several of servers and sentinels, one a shard"
            )
    return " ".join(urls) or None
