"""Items of the spider `pages`: what its pipelines hand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scrapy.http import Response

from crawlproject.models import Fetch, MediaEvent, PageEvent
from crawlproject.pages.page import Page
from crawlproject.pages.revisits import Look
from crawlproject.pages.sitemaps import Sitemap
from crawlproject.texts import without_userinfo


@dataclass(slots=True, kw_only=True)
class Fetched:
    """What a page and a sitemap have in common: a response to be read.

    It is `depth` links away from its seed (of a sitemap: its pages are), and links are followed as far as `scope`
    and `most_depth` say (None: as the settings do). `before` is what was known of it, if it is looked at again:
    with status 304 nothing has changed, and nothing is read; `look`, if it is to be looked at again, what is known
    of it now.
    """

    url: str
    source: str
    depth: int = 0
    scope: str | None = None
    most_depth: int | None = None
    response: Response = field(repr=False)
    before: Look | None = None
    look: Look | None = None

    @property
    def final_url(self) -> str:
        """The address that answered."""
        return without_userinfo(self.response.url)


@dataclass(slots=True, kw_only=True)
class FetchedPage(Fetched):
    """Item of the spider: a response that should be a page.

    `body` is the beginning of the response's without its content codings, `page` what was read in it, in `parse_s`
    seconds. `refused` are the opt-outs that forbid to keep it. Where a plug-in keeps it, its place is in `warc`.
    `content_type` is what its site declares, `statuses` are those of each redirect and of the response, `found` is
    what its event says of how it was found.
    """

    fetched_at: str
    fetch: Fetch
    content_type: str | None = None
    statuses: tuple[int, ...] = ()
    found: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] | None = None
    body: bytes = field(default=b"", repr=False)
    page: Page | None = field(default=None, repr=False)
    parse_s: float | None = None
    refused: tuple[str, ...] = ()
    warc: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class FetchedSitemap(Fetched):
    """Item of the spider: a response that should be a sitemap, `indexes` above it, and what it names."""

    indexes: int = 0
    sitemap: Sitemap | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page or a sitemap that is done; what it leads to is stored. A sitemap has no event.

    `counts`: what Redis adds to the counters of its source. It was read in `parse_s` seconds. `look`: it is to be
    looked at again. `media`: what it embeds, and is reported.
    """

    event: PageEvent | None
    status: int = 200
    counts: Mapping[str, int] = field(default_factory=dict)
    parse_s: float | None = None
    look: Look | None = None
    media: Sequence[MediaEvent] = ()
