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

    `links` and `images` are those to follow: none where `rules` forbid it. `digest` is the same for pages that
    show the same text and the same images, None for one without any.
    """

    url: str
    title: str | None
    language: str | None
    digest: str | None
    rules: Rules
    links: tuple[Link, ...]
    images: tuple[FoundImage, ...]
    licence: Licence | None


def read_page(url: str, headers: Headers, body: bytes, now: datetime) -> Page | None:
    """Return what a page says, None if the body is no HTML.

    `url` is the one that answered, absolute; `headers` are the response's, `body` its bytes without content
    codings, of which `MAX_BYTES` are read. Costs a bounded time, and raises nothing, whatever they are.
    """
    content_type = header(headers, "content-type")
    nosniff = (header(headers, "x-content-type-options") or "").strip().lower() == "nosniff"
    if not is_html(content_type, body, nosniff=nosniff):
        return None
    document = parse(url, content_type, body[:MAX_BYTES])
    rules = rules_of(headers, document.metas, now)
    images, licence = images_of(document)
    return Page(
        url=url,
        title=document.title,
        language=document.language or language_tag(header(headers, "content-language") or ""),
        rules=rules,
        links=() if rules.nofollow else links_of(document),
        images=() if rules.noimages else images,
        licence=licence,
        digest=document.digest(shown(images, document.base)),
    )
