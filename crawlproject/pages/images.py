"""The images of a page, with what it says about each: licence, alternative text, title, creator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from operator import itemgetter

from lxml.etree import _Element

from crawlproject.pages.canonical import LONGEST, image_url
from crawlproject.pages.document import WANTED, Document, text_of
from crawlproject.pages.licences import Licence, known_licence, licence_of
from crawlproject.pages.linked_data import linked_data
from crawlproject.sources.domains import domain_of_url

MOST_IMAGES = 500  # of a page
MOST_CANDIDATES = 100  # of a srcset
_MOST_LICENCES = 200  # marks of licences that are looked at
_MOST_CREATORS = 500
_MOST_ANCESTORS = 40  # of an element that are looked at
_LONGEST_TEXT = 500
_MOST_FOLDERS = 20  # of an address that are looked at: no link has more
_LONGEST_SRCSET = 32_768  # characters

_SPACE = "\t\n\f\r "
# Of a srcset: address and size, as the HTML standard splits it; commas at the end of an address are none of it.
# Commas at the end of all match, too: else each of them would begin a search.
_CANDIDATE = re.compile(r"[\s,]*+(?:(\S*[^\s,])(?:,++|\s++([^,(]*+(?:\([^)]*+\)?[^,(]*+)*+))?|\Z)", re.ASCII)
_SIZE = re.compile(r"(\d{1,6})w|(\d{1,4}(?:\.\d{1,4})?)x", re.ASCII)
Candidate = tuple[tuple[float, float], str]  # how wide, else how dense an image is, and its address
_SIZE_OF = itemgetter(0)

# Where scripts that load images later keep their addresses (lazysizes, WordPress' plugins, lozad and others).
_LAZY_SRCSET = ("data-srcset", "data-lazy-srcset")
_LAZY_SRC = ("data-src", "data-lazy-src", "data-original", "data-lazy", "data-full-src")

# What encloses an image, so that what is said in there is said of it alone.
_SCOPES = ("itemscope", "typeof", "about", "resource")
_LICENCE_WORDS = frozenset(
    ("license", "licence", *(f"{prefix}:license" for prefix in ("cc", "dc", "dct", "dcterms", "schema", "xhv")))
)
_SAYS_WHAT = ("rel", "itemprop", "property")
# Attributes that name the creator, each with the words by which it does.
_CREATOR = {
    "itemprop": frozenset(("creator", "author")),
    "property": frozenset(
        ("cc:attributionName", "dc:creator", "dct:creator", "dcterms:creator", "schema:creator")
    ),
    "rel": frozenset(("author",)),
}


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image of a page, at its absolute address.

    `licence` is its own or, where it has none, the page's: if that is not marked as such, only for images of the
    page's registrable domain.
    """

    url: str
    licence: Licence | None = None
    alt: str | None = None
    title: str | None = None
    creator: str | None = None


@dataclass(slots=True)
class _Said:
    licence: Licence | None = None
    creator: str | None = None


class Licences:
    """Which licence is said of what: of an element and all in it, of an address, of the page.

    `of_page` is that of the page, None also where it names several, `described` what its JSON-LD describes.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.described, others = linked_data(document)
        self.of_element: dict[_Element, _Said] = {}
        self._is_scope: dict[_Element, bool] = {}  # by element: an attribute is read once, however many are within
        self.of_url: dict[str, Licence] = {}
        of_page: list[Licence] = []
        linked: list[Licence] = []
        for node, licence, is_marked in _marks(document):
            scope = self._scope_of(node)
            if scope is None:
                (of_page if is_marked else linked).append(licence)
                continue
            said = self.of_element.setdefault(scope, _Said())
            said.licence = said.licence or licence
            about = scope.get("about") or scope.get("resource") or scope.get("itemid")
            if about and (url := image_url(about.strip(_SPACE), document.base)):
                self.of_url.setdefault(url, licence)
        for node in islice(filter(_names_creator, document.telling), _MOST_CREATORS):
            if (scope := self._scope_of(node)) is not None:
                said = self.of_element.setdefault(scope, _Said())
                said.creator = said.creator or _creator_in(node)
        of_page += [found for one in others[:_MOST_LICENCES] if (found := licence_of(one, document.base))]
        self.of_page = _the_only(of_page) or (None if of_page else _the_only(linked))
        self.is_marked = bool(of_page)  # as the licence of the page

    def of(self, node: _Element) -> _Said:
        """Return what the elements around one say of it: the innermost ones, up to that with a licence."""
        creator = None
        if self.of_element:
            for one in _with_ancestors(node):
                if (said := self.of_element.get(one)) is not None:
                    creator = creator or said.creator
                    if said.licence is not None:
                        return _Said(said.licence, creator)
        return _Said(creator=creator)

    def of_address(self, url: str) -> Licence | None:
        """Return what is said of an address on the page, where nothing is said in place."""
        if (found := self.of_url.get(url)) is not None:
            return found
        if self.of_page is None or self.is_marked or domain_of_url(url) == domain_of_url(self.document.url):
            return self.of_page
        return None

    def _scope_of(self, node: _Element) -> _Element | None:
        """Return the element that a licence or creator within it is said of; None if that is the page."""
        for one in _with_ancestors(node):
            if one.tag in {"body", "html"}:
                return None
            if one.tag == "figure":
                return one
            if (is_scope := self._is_scope.get(one)) is None:
                is_scope = self._is_scope[one] = _is_scope(one)
            if is_scope and (one is not node or one.get("about") is not None):
                return one
        return None


def images_of(document: Document, licences: Licences) -> tuple[FoundImage, ...]:
    """Return the images of a page, each once, in their order.

    They are those of JSON-LD (`ImageObject`), `og:image`, `link rel=image_src`, and `img`: of a `srcset`, and
    of all sources of a `picture`, the largest. An image that is found twice has what is said of it anywhere.
    """
    found: dict[str, FoundImage] = {}
    for image in _images(document, licences):
        known = found.get(image.url)
        if known is not None:
            found[image.url] = _merged(known, image)
        elif len(found) < MOST_IMAGES:
            found[image.url] = image
    return tuple(
        replace(image, licence=image.licence or licences.of_address(image.url)) for image in found.values()
    )


def shown(images: Iterable[FoundImage], base: str) -> Iterator[str]:
    """Yield what a page shows of each image, for its digest: its address from `base`, and its alternative text.

    Of the folders that both have only the last one counts: where a server ignores what stands behind a path, a
    relative address is another one on each of the pages that are one.
    """
    start = base.partition("?")[0].split("/", _MOST_FOLDERS)
    host, folders = start[:3], start[3:-1]
    for image in images:
        address = image.url
        parts = address.split("/", _MOST_FOLDERS)
        if parts[:3] == host:
            same = sum(
                1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folders, parts[3:-1], strict=False))
            )
            address = "/".join(parts[3 + max(same - 1, 0) :])
        yield f"{address} {image.alt or ''}"


def largest(srcsets: Iterable[str]) -> Candidate | None:
    """Return the largest image of several `srcset`s: the widest, else the densest; of equal ones the first."""
    return max((one for srcset in srcsets for one in _candidates(srcset)), key=_SIZE_OF, default=None)


def _candidates(srcset: str) -> Iterator[Candidate]:
    for match in islice(_CANDIDATE.finditer(srcset[:_LONGEST_SRCSET]), MOST_CANDIDATES):
        size = _SIZE.fullmatch((match[2] or "").strip(_SPACE))
        if address := (match[1] or "").strip(","):
            yield (float(size[1] or 0), float(size[2] or 0)) if size else (0.0, 1.0), address


def _images(document: Document, licences: Licences) -> Iterator[FoundImage]:
    objects = (one for one in licences.described if one.kind == "image")
    for one in islice(objects, MOST_IMAGES):
        if url := image_url(one.url, document.base):
            licence = licence_of(one.licence, document.base) if one.licence else None
            yield FoundImage(url, licence, title=one.title, creator=one.creator)
    for address in _in_head(document):
        if url := image_url(address.strip(_SPACE), document.base):
            yield FoundImage(url)
    of_picture: dict[_Element, Candidate | None] = {}
    for node in islice(document.of("img"), 4 * MOST_IMAGES):
        for address in _addresses(node, of_picture):
            if url := image_url(address, document.base):
                said = licences.of(node)
                alt, title = _text(node.get("alt")), _text(node.get("title"))
                yield FoundImage(url, said.licence, alt, title, said.creator)
                break


def _in_head(document: Document) -> Iterator[str]:
    for name, content in document.metas:
        if name in {"og:image", "og:image:url", "og:image:secure_url"}:
            yield content
    for node in document.of("link"):
        if "image_src" in (node.get("rel") or "").lower().split():
            yield node.get("href")


def _addresses(node: _Element, of_picture: dict[_Element, Candidate | None]) -> Iterator[str]:
    """Yield where an img's picture may be, the best first; `of_picture` keeps what others in its picture share."""
    found = [largest([_srcset(node)])]
    if (picture := next(node.iterancestors("picture"), None)) is not None:
        if picture not in of_picture:
            sources = islice(picture.iter("source"), MOST_CANDIDATES if len(of_picture) < MOST_IMAGES else 0)
            of_picture[picture] = largest(map(_srcset, sources))
        found.append(of_picture[picture])
    if best := max(filter(None, found), key=_SIZE_OF, default=None):
        yield best[1]
    for name in (*_LAZY_SRC, "src"):
        if value := (node.get(name) or "").strip(_SPACE):
            yield value


def _srcset(node: _Element) -> str:
    return next((value for name in (*_LAZY_SRCSET, "srcset") if (value := node.get(name))), "")


def _marks(document: Document) -> Iterator[tuple[_Element, Licence, bool]]:
    """Yield what names a licence: the element, the licence, and whether it says that this is what it is."""
    found = 0
    marked = set(filter(_names_licence, document.telling))
    others = (node for node in document.telling if node.tag not in WANTED and node in marked)
    for node in chain(document.of("link", "a", "area", "iframe", "frame"), others):
        address = node.get("href") or node.get("content") or node.get("resource") or ""
        if not address or len(address) > LONGEST:
            continue
        is_marked = node in marked
        if not is_marked and "creativecommons." not in address:
            continue
        licence = licence_of(address, document.base) if is_marked else known_licence(address.strip(_SPACE))
        if licence is not None:
            yield node, licence, is_marked
            found += 1
            if found >= _MOST_LICENCES:
                return


def _names_licence(node: _Element) -> bool:
    words = " ".join(value[:200].lower() for name in _SAYS_WHAT if (value := node.get(name)))
    return not _LICENCE_WORDS.isdisjoint(words.split())


def _names_creator(node: _Element) -> bool:
    return any(
        not words.isdisjoint(value[:200].split()) for name, words in _CREATOR.items() if (value := node.get(name))
    )


def _is_scope(node: _Element) -> bool:
    return any(node.get(name) is not None for name in _SCOPES) and not _is_about_page(node)


def _is_about_page(node: _Element) -> bool:
    kind = (node.get("itemtype") or node.get("typeof") or "")[:200]
    return node.get("about") == "" or kind.endswith(
        ("WebPage", "WebSite", "Organization", "Article", "BlogPosting")
    )


def _with_ancestors(node: _Element) -> Iterator[_Element]:
    one: _Element | None = node
    for _ in range(_MOST_ANCESTORS):
        if one is None:
            return
        yield one
        one = one.getparent()


def _creator_in(node: _Element) -> str | None:
    return _text(node.get("content")) or text_of(node, _LONGEST_TEXT) or None


def _the_only(licences: list[Licence]) -> Licence | None:
    return licences[0] if len(set(licences)) == 1 else None


def _merged(one: FoundImage, other: FoundImage) -> FoundImage:
    return FoundImage(
        one.url,
        one.licence or other.licence,
        one.alt or other.alt,
        one.title or other.title,
        one.creator or other.creator,
    )


def _text(value: str | None) -> str | None:
    return " ".join(value[:_LONGEST_TEXT].split()) or None if value else None
