"""`REDIS_URL`: a server, a socket, or sentinels that know the server."""

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


_SENTINEL, _SENTINEL_TLS = "redis+sentinel://", "rediss+sentinel://"
_SENTINEL_FORM = f"{_SENTINEL}[user:password@]host:26379[,host2:26379]/service[/db][?sentinel_password=...]"


def sentinel_address(url: str) -> SentinelAddress | None:
    """Parse a `redis+sentinel://` or `rediss+sentinel://` URL; None for a URL of another kind.

    Raises:
        ValueError: it is such a URL, and invalid; the message contains no secret.

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
    """Return the TLS options of a URL, as redis-py takes them."""
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


def redis_url(value: Any) -> str | None:
    url = text(value)
    if url is None or sentinel_address(url):
        return url
    if not (split(url).scheme and url.startswith(("redis://", "rediss://", "unix://"))):
        raise ValueError(
            "a URL that begins with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"
        )
    return url
