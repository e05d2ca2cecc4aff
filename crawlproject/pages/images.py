"""The images of a page, with what it says about each: licence, alternative text, title, creator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from selectolax.lexbor import LexborNode

from crawlproject.pages.canonical import LONGEST, image_url
from crawlproject.pages.document import Document
from crawlproject.pages.licences import Licence, known_licence, licence_of
from crawlproject.pages.linked_data import ImageObject, linked_data
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

# Where scripts that load images later keep their addresses (lazysizes, WordPress' plugins, lozad and others).
_LAZY_SRCSET = ("data-srcset", "data-lazy-srcset")
_LAZY_SRC = ("data-src", "data-lazy-src", "data-original", "data-lazy", "data-full-src")

# What encloses an image, so that what is said in there is said of it alone.
_SCOPES = ("itemscope", "typeof", "about", "resource")
_LICENCE_WORDS = frozenset(
    ("license", "licence", *(f"{prefix}:license" for prefix in ("cc", "dc", "dct", "dcterms", "schema", "xhv")))
)
_SAYS_WHAT = ("rel", "itemprop", "property")
_CREATOR = (
    '[itemprop~="creator"],[itemprop~="author"],[property~="cc:attributionName"],[property~="dc:creator"],'
    '[property~="dct:creator"],[property~="dcterms:creator"],[property~="schema:creator"],[rel~="author"]'
)


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


class _Licences:
    """Which licence is said of what: of an element and all in it, of an address, of the page."""

    def __init__(self, document: Document, objects: list[ImageObject], others: list[str]) -> None:
        self.document = document
        self.of_element: dict[int, _Said] = {}
        self._is_scope: dict[int, bool] = {}  # by element: an attribute is read once, however many are within
        self.of_url: dict[str, Licence] = {}
        of_page: list[Licence] = []
        linked: list[Licence] = []
        for node, licence, is_marked in _marks(document):
            scope = self._scope_of(node)
            if scope is None:
                (of_page if is_marked else linked).append(licence)
                continue
            said = self.of_element.setdefault(scope.mem_id, _Said())
            said.licence = said.licence or licence
            attributes = scope.attributes
            about = attributes.get("about") or attributes.get("resource") or attributes.get("itemid")
            if about and (url := image_url(about.strip(_SPACE), document.base)):
                self.of_url.setdefault(url, licence)
        for node in document.tree.css(_CREATOR)[:_MOST_CREATORS]:
            if (scope := self._scope_of(node)) is not None:
                said = self.of_element.setdefault(scope.mem_id, _Said())
                said.creator = said.creator or _creator_in(node)
        of_page += [found for one in others[:_MOST_LICENCES] if (found := licence_of(one, document.base))]
        self.of_page = _the_only(of_page) or (None if of_page else _the_only(linked))
        self.is_marked = bool(of_page)  # as the licence of the page

    def of(self, node: LexborNode) -> _Said:
        """Return what the elements around one say of it: the innermost ones, up to that with a licence."""
        creator = None
        if self.of_element:
            for one in _with_ancestors(node):
                if (said := self.of_element.get(one.mem_id)) is not None:
                    creator = creator or said.creator
                    if said.licence is not None:
                        return _Said(said.licence, creator)
        return _Said(creator=creator)

    def _scope_of(self, node: LexborNode) -> LexborNode | None:
        """Return the element that a licence or creator within it is said of; None if that is the page."""
        for one in _with_ancestors(node):
            if one.tag in {"body", "html"}:
                return None
            if one.tag == "figure":
                return one
            if (is_scope := self._is_scope.get(one.mem_id)) is None:
                is_scope = self._is_scope[one.mem_id] = _is_scope(one)
            if is_scope and (one is not node or "about" in one.attributes):
                return one
        return None


def images_of(document: Document) -> tuple[tuple[FoundImage, ...], Licence | None]:
    """Return the images of a page, each once, in their order, and its licence: None also where it names several.

    They are those of JSON-LD (`ImageObject`), `og:image`, `link rel=image_src`, and `img`: of a `srcset`, and
    of all sources of a `picture`, the largest. An image that is found twice has what is said of it anywhere.
    """
    objects, others = linked_data(document)
    licences = _Licences(document, objects, others)
    found: dict[str, FoundImage] = {}
    for image in _images(document, objects, licences):
        known = found.get(image.url)
        if known is not None:
            found[image.url] = _merged(known, image)
        elif len(found) < MOST_IMAGES:
            found[image.url] = image
    domain = domain_of_url(document.url)

    def licence_of_page(image: FoundImage) -> Licence | None:
        if licences.of_page is None or licences.is_marked:
            return licences.of_page
        return licences.of_page if domain_of_url(image.url) == domain else None

    whole = (
        replace(image, licence=image.licence or licences.of_url.get(image.url) or licence_of_page(image))
        for image in found.values()
    )
    return tuple(whole), licences.of_page


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


def largest(srcsets: Iterable[str]) -> str | None:
    """Return the address of the largest image of several `srcset`s: the widest, else the densest."""
    candidate = largest_candidate(srcsets)
    return candidate.split()[0] if candidate else None


def largest_candidate(srcsets: Iterable[str]) -> str | None:
    """Return the candidate of several `srcset`s, address and size, whose image is the largest."""
    best: tuple[float, float] = (-1.0, -1.0)
    found = None
    for srcset in srcsets:
        for match in islice(_CANDIDATE.finditer(srcset[:_LONGEST_SRCSET]), MOST_CANDIDATES):
            described = (match[2] or "").strip(_SPACE)
            size = _SIZE.fullmatch(described)
            rank = (float(size[1] or 0), float(size[2] or 0)) if size else (0.0, 1.0)
            if rank > best and (address := (match[1] or "").strip(",")):
                best, found = rank, f"{address} {described}"
    return found


def _images(document: Document, objects: list[ImageObject], licences: _Licences) -> Iterator[FoundImage]:
    for one in objects[:MOST_IMAGES]:
        if url := image_url(one.url, document.base):
            licence = licence_of(one.licence, document.base) if one.licence else None
            yield FoundImage(url, licence, title=one.title, creator=one.creator)
    for address in _in_head(document):
        if url := image_url(address.strip(_SPACE), document.base):
            yield FoundImage(url)
    of_picture: dict[int, list[str]] = {}
    for node in islice(document.of("img"), 4 * MOST_IMAGES):
        attributes = node.attributes
        for address in _addresses(node, attributes, of_picture):
            if url := image_url(address, document.base):
                said = licences.of(node)
                alt, title = _text(attributes.get("alt")), _text(attributes.get("title"))
                yield FoundImage(url, said.licence, alt, title, said.creator)
                break


def _in_head(document: Document) -> Iterator[str]:
    for name, content in document.metas:
        if name in {"og:image", "og:image:url", "og:image:secure_url"}:
            yield content
    for node in document.of("link"):
        attributes = node.attributes
        if "image_src" in (attributes.get("rel") or "").lower().split():
            yield attributes.get("href") or ""


def _addresses(
    node: LexborNode, attributes: dict[str, str | None], of_picture: dict[int, list[str]]
) -> Iterator[str]:
    """Yield where an img's picture may be, the best first; `of_picture` keeps what others in its picture share."""
    srcsets = [_srcset(attributes)]
    parent = node.parent
    if parent is not None and parent.tag == "picture":
        if (sources := of_picture.get(parent.mem_id)) is None:
            sources = of_picture[parent.mem_id] = _sources(parent)
        srcsets += sources
    if found := largest(srcsets):
        yield found
    for name in (*_LAZY_SRC, "src"):
        if value := (attributes.get(name) or "").strip(_SPACE):
            yield value


def _sources(picture: LexborNode) -> list[str]:
    """Return the largest image of the sources in a picture, as a srcset."""
    children = islice(picture.iter(), MOST_CANDIDATES)
    best = largest_candidate(_srcset(child.attributes) for child in children if child.tag == "source")
    return [best] if best else []


def _srcset(attributes: dict[str, str | None]) -> str:
    return next((value for name in (*_LAZY_SRCSET, "srcset") if (value := attributes.get(name))), "")


def _marks(document: Document) -> Iterator[tuple[LexborNode, Licence, bool]]:
    """Yield what names a licence: the element, the licence, and whether it says that this is what it is."""
    found = 0
    for tag, nodes in document.elements.items():
        if tag in {"base", "title", "meta", "img", "picture", "source", "script"}:
            continue
        for node in nodes:
            attributes = node.attributes
            address = attributes.get("href") or attributes.get("content") or attributes.get("resource") or ""
            if not address or len(address) > LONGEST:
                continue
            words = [value[:200].lower() for name in _SAYS_WHAT if (value := attributes.get(name))]
            is_marked = bool(words) and not _LICENCE_WORDS.isdisjoint(" ".join(words).split())
            if not is_marked and "creativecommons." not in address:
                continue
            licence = licence_of(address, document.base) if is_marked else known_licence(address.strip(_SPACE))
            if licence is not None:
                yield node, licence, is_marked
                found += 1
                if found >= _MOST_LICENCES:
                    return


def _is_scope(node: LexborNode) -> bool:
    attributes = node.attributes
    return any(name in attributes for name in _SCOPES) and not _is_about_page(attributes)


def _is_about_page(attributes: dict[str, str | None]) -> bool:
    kind = (attributes.get("itemtype") or attributes.get("typeof") or "")[:200]
    return attributes.get("about") == "" or kind.endswith(
        ("WebPage", "WebSite", "Organization", "Article", "BlogPosting")
    )


def _with_ancestors(node: LexborNode) -> Iterator[LexborNode]:
    one: LexborNode | None = node
    for _ in range(_MOST_ANCESTORS):
        if one is None:
            return
        yield one
        one = one.parent


def _creator_in(node: LexborNode) -> str | None:
    return _text(node.attributes.get("content") or node.text()[: 4 * _LONGEST_TEXT])


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
