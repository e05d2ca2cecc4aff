"""Items of the spider `pages`: what its pipelines hand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scrapy.http import Response

from crawlproject.models import Fetch, PageEvent
from crawlproject.pages.page import Page
from crawlproject.pages.revisits import Look
from crawlproject.pages.sitemaps import Sitemap


@dataclass(slots=True)
class FetchedPage:
    """Item of the spider `pages`: a response to be read. The pipelines turn it into an event.

    Links are followed as far as `scope` and `most_depth` say (None: as the settings do). `body` is the beginning
    of the response's without its content codings, `page` what was read in it, in `parse_s` seconds.
    `refused` are the opt-outs that forbid to keep it. `before` is what was known of it, if it is looked at again:
    with status 304 nothing has changed, and nothing is read; `look`, if it is to be looked at again, what is known
    of it now. What is in `exchange` goes to the content store, which puts its place into `warc`.
    """

    url: str
    source: str
    depth: int
    scope: str | None
    most_depth: int | None
    fetched_at: str
    fetch: Fetch
    response: Response = field(repr=False)
    extra: Mapping[str, Any] | None = None
    body: bytes = field(default=b"", repr=False)
    page: Page | None = field(default=None, repr=False)
    parse_s: float = 0.0
    refused: tuple[str, ...] = ()
    before: Look | None = None
    look: Look | None = None
    exchange: object = field(default=None, repr=False)  # storage.warc.Exchange
    warc: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FetchedSitemap:
    """Item of the spider `pages`: a response that should be a sitemap. The pipelines make a `ReadPage` of it.

    `scope`, `most_depth` and `depth` are those of its pages. There are `indexes` indexes above it; it may lead to
    `sitemaps` others. `sitemap` is what was read in it. `before` and `look` are as in `FetchedPage`.
    """

    url: str
    source: str
    depth: int
    scope: str | None
    most_depth: int | None
    indexes: int
    sitemaps: int
    response: Response = field(repr=False)
    before: Look | None = None
    look: Look | None = None
    sitemap: Sitemap | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Item: a page or a sitemap that is done; what it leads to is stored. A sitemap has no event.

    `counts`: what Redis adds to the counters of its source. It was read in `parse_s` seconds. `look`: it is to be
    looked at again.
    """

    event: PageEvent | None
    status: int = 200
    counts: Mapping[str, int] = field(default_factory=dict)
    parse_s: float | None = None
    look: Look | None = None
