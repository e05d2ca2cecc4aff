"""The links of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lxml.etree import _Element

from crawlproject.pages.canonical import LONGEST, canonical_url
from crawlproject.pages.document import Document, text_of

MOST_LINKS = 1000  # of a page
_MOST_CHARACTERS = 500_000  # of all their addresses: with a long base a short link takes long, too
LONGEST_TEXT = 100  # characters of a link's text, and of its `rel`
MOST_OUTLINKS = 150_000  # characters of all that is reported of a page's links: an event stays below a megabyte

_RELATIONS = frozenset(("next", "prev", "canonical"))
_NO_PAGE = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)  # mailto:, javascript:, data:
_REFRESH = re.compile(r"\s*[\d.]+\s*[;,\s]\s*(?:url\s*=\s*)?(['\"]?)(.*)", re.IGNORECASE | re.DOTALL | re.ASCII)
_SPACE = "\t\n\f\r "


class Link(NamedTuple):
    """A link: its canonical address, and whether all that lead there say `rel=nofollow`.

    `text` is the first that one of them has, `rel` that of the first, in lower case; both only where asked for.
    """

    url: str
    nofollow: bool = False
    text: str = ""
    rel: str = ""


def links_of(document: Document, *, with_texts: bool = False) -> tuple[Link, ...]:
    """Return the links of a page, each once, in their order; itself left out.

    They are those of `a`, `area`, `iframe`, `frame`, of meta refresh, and of `link` whose `rel` is next, prev,
    canonical, or alternate with a `hreflang`.
    """
    raw: dict[str, Link] = {}
    own = canonical_url(document.url)
    for href, nofollow, node in _hrefs(document):
        bare = href.strip(_SPACE).partition("#")[0]
        known = raw.get(bare)
        if known is not None and not with_texts and known.nofollow <= nofollow:
            continue  # it says nothing new
        if not bare or _NO_PAGE.match(bare):
            continue
        if len(bare) > LONGEST or (known is None and len(raw) >= 2 * MOST_LINKS):
            continue
        is_told = with_texts and (known is None or not known.text)
        link = Link(bare, nofollow, _text(node), _rel(node)) if is_told else Link(bare, nofollow)
        raw[bare] = link if known is None else _merged(known, link)
    found: dict[str, Link] = {}
    characters = 0
    for bare, link in raw.items():
        if characters > _MOST_CHARACTERS:
            break
        url = canonical_url(bare, document.base)
        characters += len(document.base) + len(bare) if url is None else len(url)
        if url is None or url == own:
            continue
        if (known := found.get(url)) is not None:
            found[url] = _merged(known, link)
        elif len(found) < MOST_LINKS:
            found[url] = Link(url, *link[1:])
    return tuple(found.values())


def outlinks(links: Iterable[Link]) -> list[dict[str, str]]:
    """Return what is reported of the links of a page: the first ones, up to a bound of all their characters."""
    told: list[dict[str, str]] = []
    left = MOST_OUTLINKS
    for link in links:
        left -= len(link.url) + len(link.text) + len(link.rel)
        if left < 0:
            break
        told.append({"url": link.url, "text": link.text, "rel": link.rel})
    return told


def _merged(one: Link, other: Link) -> Link:
    return Link(one.url, one.nofollow and other.nofollow, one.text or other.text, one.rel)


def _text(node: _Element) -> str:
    if node.tag == "area":
        return " ".join((node.get("alt") or "")[:LONGEST_TEXT].split())
    return text_of(node, LONGEST_TEXT) if node.tag == "a" else ""


def _rel(node: _Element) -> str:
    return " ".join((node.get("rel") or "")[:LONGEST_TEXT].lower().split())


def _hrefs(document: Document) -> Iterator[tuple[str, bool, _Element]]:
    """Yield what links to somewhere, whether it says not to follow it, and where; those of the head first."""
    for node in document.of("link"):
        relations = _words(node.get("rel"))
        if _RELATIONS & relations or ("alternate" in relations and node.get("hreflang")):
            yield node.get("href"), "nofollow" in relations, node
    for node in document.of("meta"):
        is_refresh = (node.get("http-equiv") or "").strip(_SPACE).lower() == "refresh"
        if is_refresh and (match := _REFRESH.fullmatch((node.get("content"))[: 2 * LONGEST])):
            yield match[2].partition(match[1])[0] if match[1] else match[2], False, node
    for node in document.of("a", "area"):
        rel = node.get("rel")
        yield node.get("href"), rel is not None and "nofollow" in _words(rel), node
    for node in document.of("iframe", "frame"):
        yield node.get("src") or "", False, node


def _words(text: str | None) -> set[str]:
    return set(text[:200].lower().split()) if text else set()
