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


def links_of(document: Document) -> tuple[Link, ...]:
    """Return the links of a page, each once, in their order; itself left out.

    They are those of `a`, `area`, `iframe`, `frame`, of meta refresh, and of `link` whose `rel` is next, prev,
    canonical, or alternate with a `hreflang`.
    """
    raw: dict[str, bool] = {}
    own = canonical_url(document.url)
    for href, nofollow in _hrefs(document):
        bare = href.strip(_SPACE).partition("#")[0]
        if not bare or _NO_PAGE.match(bare):
            continue
        if len(bare) > LONGEST or (bare not in raw and len(raw) >= 2 * MOST_LINKS):
            continue
        raw[bare] = raw.get(bare, True) and nofollow
    found: dict[str, bool] = {}
    characters = 0
    for bare, nofollow in raw.items():
        if characters > _MOST_CHARACTERS:
            break
        url = canonical_url(bare, document.base)
        characters += len(document.base) + len(bare) if url is None else len(url)
        if url is not None and url != own and (url in found or len(found) < MOST_LINKS):
            found[url] = found.get(url, True) and nofollow
    return tuple(Link(*one) for one in found.items())


def _hrefs(document: Document) -> Iterator[tuple[str, bool]]:
    """Yield what links to somewhere, and whether it says not to follow it; those of the head first."""
    for node in document.of("link"):
        relations = _words(node.get("rel"))
        if _RELATIONS & relations or ("alternate" in relations and node.get("hreflang")):
            yield node.get("href"), "nofollow" in relations
    for node in document.of("meta"):
        is_refresh = (node.get("http-equiv") or "").strip(_SPACE).lower() == "refresh"
        if is_refresh and (match := _REFRESH.fullmatch((node.get("content"))[: 2 * LONGEST])):
            yield match[2].partition(match[1])[0] if match[1] else match[2], False
    for node in document.of("a", "area"):
        rel = node.get("rel")
        yield node.get("href"), rel is not None and "nofollow" in _words(rel)
    for node in document.of("iframe", "frame"):
        yield node.get("src") or "", False


def _words(text: str | None) -> set[str]:
    return set(text[:200].lower().split()) if text else set()
