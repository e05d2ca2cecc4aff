"""The page on which an operator watches the crawl and controls it; `scrapy monitor` serves it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from crawlproject import config
from crawlproject.config.parsers import address, split, text, whole
from crawlproject.plugins import Plugin


def _origin(value: Any) -> str | None:
    """Return the scheme, host and port of a web page as browsers send them in `Origin` (RFC 6454)."""
    url = text(value)
    if url is None:
        return None
    parts = split(url)
    bare = f"{parts.scheme}://{parts.netloc}".lower()
    if not re.fullmatch(r"https?://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:\d+)?", bare) or url.lower() not in {
        bare,
        f"{bare}/",
    }:
        raise ValueError("a scheme and a host alone, like https://crawl.example.org")
    return bare.removesuffix(":443" if parts.scheme == "https" else ":80")


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardSettings:
    """Where it is served, and to whom."""

    PREFIX: ClassVar[str] = "CRAWL_DASHBOARD_"

    port: int = config.setting(
        9411,
        whole(0, 65535),
        "port of `crawlproject monitor`'s dashboard; 0: none",
        unit="port",
    )
    address: str = config.setting(
        "127.0.0.1",
        address,
        "address that the dashboard is bound to; any but a loopback address needs a password",
    )
    password: str | None = config.setting(
        None,
        text,
        "password of the dashboard; none: open to everybody on this machine; never shown",
        secret=True,
    )
    origin: str | None = config.setting(
        None,
        _origin,
        "the dashboard's address as browsers see it behind a proxy, as in `https://crawl.example.org`",
    )


PLUGIN = Plugin(
    settings=DashboardSettings,
    services={"dashboard": "crawlproject.contrib.dashboard.service.DashboardService"},
)
