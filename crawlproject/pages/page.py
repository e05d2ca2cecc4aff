"""From (URL, headers, bytes) to what a page says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from crawlproject.pages.document import language_tag, parse
from crawlproject.pages.images import FoundImage, images_of, shown
from crawlproject.pages.licences import Licence
from crawlproject.pages.links import Link, links_of
from crawlproject.pages.rules import Headers, Rules, header, rules_of
from crawlproject.pages.sniffing import is_html

MAX_BYTES = 250_000


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says.

    `links` and `images` are those to follow: none where `rules` forbid it. `canonical` is the address that it
    gives as its own, which proves nothing. `digest` is the same for pages that show the same text and the same
    images, None for one without any. `is_cut` says that its end was not read, `left_out` how many links and images
    were not: too many, too long, or no addresses.
    """

    url: str
    title: str | None
    language: str | None
    encoding: str
    canonical: str | None
    digest: str | None
    rules: Rules
    links: tuple[Link, ...]
    images: tuple[FoundImage, ...]
    licence: Licence | None
    left_out: int
    is_cut: bool


def read_page(
    url: str, headers: Headers, body: bytes, now: datetime, *, max_bytes: int = MAX_BYTES
) -> Page | None:
    """Return what a page says, None if the body is no HTML.

    `url` is the one that answered, absolute; `headers` are the response's, `body` its bytes without content
    codings, of which `max_bytes` are read. Costs a bounded time (see `nesting`), and raises nothing, whatever they
    are.
    """
    content_type = header(headers, "content-type")
    nosniff = (header(headers, "x-content-type-options") or "").strip().lower() == "nosniff"
    if not is_html(content_type, body, nosniff=nosniff):
        return None
    document = parse(url, content_type, body, max_bytes)
    rules = rules_of(headers, document.metas, now)
    links = links_of(document)
    images = images_of(document)
    return Page(
        url=url,
        title=document.title,
        language=document.language or language_tag(header(headers, "content-language") or ""),
        encoding=document.encoding,
        canonical=links.canonical,
        rules=rules,
        links=() if rules.nofollow else links.found,
        images=() if rules.noimages else images.found,
        licence=images.licence,
        left_out=links.left_out + images.left_out,
        is_cut=document.is_cut,
        digest=document.digest(shown(images.found, document.base)),
    )
