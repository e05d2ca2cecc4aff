"""Pages and sitemaps that are looked at again: what is kept of the last look, and when the next one is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from scrapy.http import Headers

from crawlproject.politeness.versions import Version

UNCHANGED, CHANGED = "unchanged", "changed"  # what a look has found, in events
LONGEST_S = 30 * 86_400.0  # between two looks; as in the Lua module `revisits`


class Look(NamedTuple):
    """What is known of a page, or a sitemap, when it is to be looked at again `interval` seconds later.

    `digest` is that of its text (of a sitemap, its bytes), `url` the address that answered, of which `etag` and
    `modified` are; "" where the site named none. `kept_at` says when the record in the content store that has its
    body was fetched, `sha1` is that body's digest in base 32, "" where it was cut off; both "" without a record.
    """

    interval: float
    digest: str
    url: str
    etag: str = ""
    modified: str = ""
    kept_at: str = ""
    sha1: str = ""

    @property
    def conditions(self) -> Mapping[str, str]:
        """The headers by which a site is asked for `url` only if it has changed (RFC 9110, section 13)."""
        return Version(self.etag, self.modified).conditions

    def after(self, before: Look | None, shortest: float) -> Look:
        """Return this look with the time until the next one, between `shortest` and 30 days.

        It is half of that `before` it if something has changed, else twice that.
        """
        if before is None:
            return self._replace(interval=shortest)
        factor = 2.0 if verdict(before, self.digest) == UNCHANGED else 0.5
        return self._replace(interval=min(max(before.interval * factor, shortest), LONGEST_S))


def verdict(before: Look | None, digest: str) -> str | None:
    """Return what a look has found by the digest of now, as events say it; None for the first look."""
    if before is None:
        return None
    return UNCHANGED if before.digest == digest else CHANGED


def look_of(url: str, headers: Headers, digest: str) -> Look:
    """Return what is known of a page that `url` has answered with."""
    return Look(LONGEST_S, digest, url, *Version.of(headers.get("ETag"), headers.get("Last-Modified")))


def is_home(url: str) -> bool:
    """Tell whether a page is the home page of its host."""
    parts = urlsplit(url)
    return parts.path in {"", "/"} and not parts.query
