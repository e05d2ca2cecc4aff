"""From (URL, headers, bytes) to what a page says."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from scrapy.http import Headers

from crawlproject.pages.document import language_tag, parse
from crawlproject.pages.images import FoundImage, Licences, images_of, shown
from crawlproject.pages.licences import Licence
from crawlproject.pages.links import Link, links_of
from crawlproject.pages.media import FoundMedia, media_of
from crawlproject.pages.rules import Rules, header, rules_of

MAX_BYTES = 250_000

# Whether a body is HTML: WHATWG MIME Sniffing, sections 5 and 7, as far as it concerns HTML.
_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_UNKNOWN_TYPES = frozenset(("", "unknown/unknown", "application/unknown", "*/*"))
_HEADER = 1445  # bytes that are looked at (section 5.2)

_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_TAGS = b"!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p".split(b"|")
_HTML = re.compile(rb"[\t\n\x0c\r ]*+<(?:(?:" + b"|".join(_TAGS) + rb")[ >]|!--)", re.IGNORECASE)
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
# What servers send as text/html although it is none, and has no byte that text cannot have in its first ones.
_OTHERS = (b"%PDF-", b"%!PS-", b"GIF8", b"{\\rtf", b"\xff\xd8\xff", b"RIFF", b"PK\x03\x04", b"\x1f\x8b")


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says.

    `links` and `images` are those to follow, `media` what is reported: none where `rules` forbid it. `digest` is
    the same for pages that show the same text and the same images, None for one without any.
    """

    url: str
    title: str | None
    language: str | None
    digest: str | None
    rules: Rules
    links: tuple[Link, ...]
    images: tuple[FoundImage, ...]
    licence: Licence | None
    media: tuple[FoundMedia, ...] = ()


def read_page(
    url: str,
    headers: Headers,
    body: bytes,
    now: datetime,
    *,
    link_texts: bool = False,
    media: Collection[str] = (),
) -> Page | None:
    """Return what a page says, None if the body is no HTML.

    `url` is the one that answered, absolute; `headers` are the response's, `body` its bytes without content
    codings, of which `MAX_BYTES` are read. Costs a bounded time, and raises nothing, whatever they are.
    `link_texts`: links with what they say. `media`: also `audio`, `video`, or both.
    """
    content_type = header(headers, "content-type")
    nosniff = header(headers, "x-content-type-options").strip().lower() == "nosniff"
    if not is_html(content_type, body, nosniff=nosniff):
        return None
    document = parse(url, content_type, body[:MAX_BYTES])
    rules = rules_of(headers, document.metas, now)
    licences = Licences(document)
    images = images_of(document, licences)
    return Page(
        url=url,
        title=document.title,
        language=document.language or language_tag(header(headers, "content-language")),
        rules=rules,
        links=() if rules.nofollow else links_of(document, with_texts=link_texts),
        images=() if rules.noimages else images,
        media=() if rules.noimages or not media else media_of(document, licences, media),
        licence=licences.of_page,
        digest=document.digest(shown(images, document.base)),
    )


def is_html(content_type: str, body: bytes, *, nosniff: bool = False) -> bool:
    """Tell whether a response is HTML.

    `content_type` is its header, "" without one. What is declared as HTML is, unless its bytes are those of
    something else; what has no type, or an unknown one, is if it begins as HTML does, unless `nosniff`, the
    X-Content-Type-Options header, forbids to look. Any other type is believed.
    """
    essence = content_type.partition(";")[0].strip().lower()
    if essence in _HTML_TYPES:
        return body.startswith(_MARKS) or not (body.startswith(_OTHERS) or _BINARY.search(body[:_HEADER]))
    if essence not in _UNKNOWN_TYPES or nosniff:
        return False
    return _HTML.match(body.removeprefix(_MARKS[0])[:_HEADER]) is not None
