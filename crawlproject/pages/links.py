"""The links of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crawlproject.pages.canonical import LONGEST, canonical_url
from crawlproject.pages.document import Document

MOST_LINKS = 1000  # of a page
_MOST_CHARACTERS = 500_000  # of all their addresses: with a long base a short link takes long, too

_RELATIONS = frozenset(("next", "prev", "canonical"))
_NO_PAGE = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)  # mailto:, javascript:, data:
_REFRESH = re.compile(r"\s*[\d.]+\s*[;,\s]\s*(?:url\s*=\s*)?(['\"]?)(.*)", re.IGNORECASE | re.DOTALL | re.ASCII)
_SPACE = "\t\n\f\r "


class Link(NamedTuple):
    """A link: its canonical address, and whether all that lead there say `rel=nofollow`."""

    url: str
    nofollow: bool = False


class Links(NamedTuple):
    """The links of a page, each once, in their order; and how many more there were, or were no addresses."""

    found: tuple[Link, ...]
    canonical: str | None
    left_out: int


def links_of(document: Document) -> Links:
    """Return the links of a page, itself left out.

    They are those of `a`, `area`, `iframe`, `frame`, of meta refresh, and of `link` whose `rel` is next, prev,
    canonical, or alternate with a `hreflang`.
    """
    raw: dict[str, bool] = {}
    left_out = 0
    own = canonical_url(document.url)
    for href, nofollow in _hrefs(document):
        bare = href.strip(_SPACE).partition("#")[0]
        if not bare or _NO_PAGE.match(bare):
            continue
        if len(bare) > LONGEST or (bare not in raw and len(raw) >= 2 * MOST_LINKS):
            left_out += 1
            continue
        raw[bare] = raw.get(bare, True) and nofollow
    found: dict[str, bool] = {}
    characters = 0
    for bare, nofollow in raw.items():
        if characters > _MOST_CHARACTERS:
            left_out += 1
            continue
        url = canonical_url(bare, document.base)
        characters += len(document.base) + len(bare) if url is None else len(url)
        if url is None or (url not in found and len(found) >= MOST_LINKS):
            left_out += 1
        elif url != own:
            found[url] = found.get(url, True) and nofollow
    return Links(tuple(Link(*one) for one in found.items()), _canonical(document), left_out)


def _hrefs(document: Document) -> Iterator[tuple[str, bool]]:
    """Yield what links to somewhere, and whether it says not to follow it; those of the head first."""
    for node in document.of("link"):
        attributes = node.attributes
        relations = _words(attributes.get("rel"))
        if _RELATIONS & relations or ("alternate" in relations and attributes.get("hreflang")):
            yield attributes.get("href") or "", "nofollow" in relations
    for node in document.of("meta"):
        attributes = node.attributes
        is_refresh = (attributes.get("http-equiv") or "").strip(_SPACE).lower() == "refresh"
        if is_refresh and (match := _REFRESH.fullmatch((attributes.get("content") or "")[: 2 * LONGEST])):
            yield match[2].partition(match[1])[0] if match[1] else match[2], False
    for node in document.of("a", "area"):
        attributes = node.attributes
        rel = attributes.get("rel")
        yield attributes.get("href") or "", rel is not None and "nofollow" in _words(rel)
    for node in document.of("iframe", "frame"):
        yield node.attributes.get("src") or "", False


def _canonical(document: Document) -> str | None:
    for node in document.of("link"):
        attributes = node.attributes
        if "canonical" in _words(attributes.get("rel")):
            return canonical_url((attributes.get("href") or "").strip(_SPACE), document.base)
    return None


def _words(text: str | None) -> set[str]:
    return set(text[:200].lower().split()) if text else set()
