"""`REDIS_URL`: a server, a socket, sentinels that know the server, nodes of a Redis Cluster; or several URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from crawlproject.config.parsers import split, text


class MasterAddress(NamedTuple):
    """The parts of a URL that names who knows the master: sentinels, or some nodes of a Redis Cluster."""

    nodes: tuple[tuple[str, int], ...]
    credentials: Mapping[str, str] = {}  # username and password for the Redis servers
    tls: Mapping[str, Any] = {}  # redis-py's TLS options, for all of them; empty: no TLS
    service: str = ""  # by which sentinels know the master; empty: it is a cluster
    db: int = 0
    sentinel_credentials: Mapping[str, str] = {}  # the same for the sentinels, if they need any


_SERVERS = ("redis://", "rediss://", "unix://")
_SENTINEL = "redis+sentinel://[user:password@]host:26379[,host2:26379]/service[/db][?sentinel_password=...]"
_CLUSTER = "redis+cluster://[user:password@]host:6379[,host2:6379]"
_TLS = (
    "the files ssl_ca_certs, ssl_certfile and ssl_keyfile, and ssl_check_hostname=true or false, as its only "
    "options for TLS"
)


def sentinel_address(url: str) -> MasterAddress | None:
    """Parse a `redis+sentinel://` or `rediss+sentinel://` URL; None for a URL of another kind.

    Raises:
        ValueError: it is such a URL, and invalid; the message contains no secret.

    """
    if not url.startswith(("redis+sentinel://", "rediss+sentinel://")):
        return None
    address, path, options = _parts(url, 26379, _SENTINEL)
    service, db = ([*path.split("/"), ""])[:2]
    if not service or path.count("/") > 1 or not re.fullmatch(r"\d{0,4}", db):
        raise ValueError(f"{_SENTINEL}, with the name of the service and a whole number as db")
    if options.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError(f"{_SENTINEL}, with sentinel_username and sentinel_password as its only options")
    asking = {name.removeprefix("sentinel_"): value for name, value in options.items() if value}
    return address._replace(service=unquote(service), db=int(db or 0), sentinel_credentials=asking)


def cluster_address(url: str) -> MasterAddress | None:
    """Parse a `redis+cluster://` or `rediss+cluster://` URL; None for a URL of another kind.

    Raises:
        ValueError: it is such a URL, and invalid; the message contains no secret.

    """
    if not url.startswith(("redis+cluster://", "rediss+cluster://")):
        return None
    address, path, options = _parts(url, 6379, _CLUSTER)
    if path not in {"", "0"}:
        raise ValueError(f"{_CLUSTER}, without a db: a Redis Cluster has db 0 alone")
    if options:
        raise ValueError(f"{_CLUSTER}, without options, unless for TLS (rediss+cluster://)")
    return address


def _parts(url: str, port: int, form: str) -> tuple[MasterAddress, str, dict[str, str]]:
    """Return nodes, login and TLS of a URL of this form, what is behind the nodes, and the other options."""
    scheme, _, place = url.partition("://")
    place, _, query = place.partition("?")
    login, at, place = place.rpartition("@")
    user, colon, password = login.partition(":")
    if at and not colon:
        raise ValueError(f"{form}, with user:password or :password before the @")
    given = {"username": unquote(user), "password": unquote(password)}
    hosts, _, path = place.partition("/")
    found = [re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?", host) for host in hosts.split(",")]
    nodes = tuple((match[1].strip("[]"), int(match[2] or port)) for match in found if match)
    if len(nodes) < len(found) or any(not 0 < number < 65536 for _, number in nodes):
        raise ValueError(f"{form}, with each host as name, name:port or [address]:port")
    options = dict(parse_qsl(query, keep_blank_values=True))
    tls = _tls_options(options, form) if scheme.startswith("rediss") else {}
    credentials = {name: value for name, value in given.items() if value}
    return MasterAddress(nodes, credentials, tls), path.rstrip("/"), options


def _tls_options(options: dict[str, str], form: str) -> dict[str, Any]:
    """Take the TLS options out of those of a URL, and return them as redis-py takes them."""
    tls: dict[str, Any] = {"ssl": True}
    for name in [name for name in options if name.startswith("ssl_")]:
        value = options.pop(name)
        if name in {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"} and value:
            tls[name] = value
        elif name == "ssl_check_hostname" and value in {"true", "false"}:
            tls[name] = value == "true"
        else:
            raise ValueError(f"{form}, with {_TLS}")
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
