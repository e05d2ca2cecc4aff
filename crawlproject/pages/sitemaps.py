"""Sitemaps (sitemaps.org, and Google's extension for images): the addresses that a site names itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from xml.parsers import expat

from crawlproject.pages.canonical import LONGEST, canonical_url, image_url
from crawlproject.pages.images import FoundImage
from crawlproject.pages.licences import licence_of

MAX_BYTES = 50 * 1024 * 1024  # without compression
MOST_URLS = 50_000  # of a sitemap, and sitemaps of an index
MOST_SITEMAPS = 500  # that all robots.txt and indexes of a source lead to: for the caller
INDEX_DEPTH = 2  # indexes in indexes: for the caller
MOST_IMAGES = 1000  # of a page in a sitemap; of the whole sitemap two for each address that is read

_MOST_LINES = 2 * MOST_SITEMAPS  # of a robots.txt
_LEAVES = frozenset(("loc", "license", "title", "caption"))
# What no honest sitemap has, and what would cost time or memory without end
_MOST_ELEMENTS = 2_000_000
_MOST_OPEN = 100  # elements in each other
_MOST_NAMES = 1000  # of elements and attributes; and namespaces
_LONGEST_TOKEN = 1024 * 1024  # bytes: a tag, a comment; the parser keeps them until their end
_CHUNK = 65_536
_LONGEST_TEXT = 4 * LONGEST  # characters of an element
_ADDRESS_LINE = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t]*(https?://[^\n]*)", re.MULTILINE)
_ROBOTS_LINE = re.compile(rb"^[ \t]*sitemap[ \t]*:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_XML = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class SitemapPage:
    """A page in a sitemap."""

    url: str
    images: tuple[FoundImage, ...] = ()


@dataclass(slots=True)
class Sitemap:
    """What a sitemap names: pages, or the other sitemaps of an index."""

    pages: list[SitemapPage] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)


def sitemaps_of_robots(body: bytes, url: str) -> list[str]:
    """Return the first 1,000 sitemaps that a robots.txt at `url` names; they stand outside of its groups."""
    lines = islice(_ROBOTS_LINE.finditer(_lines(body)), _MOST_LINES)
    found = (canonical_url(match[1].decode(errors="replace"), url) for match in lines)
    return list(dict.fromkeys(one for one in found if one))


def sitemap_lines(body: bytes) -> bytes:
    """Return the lines of a robots.txt that name sitemaps."""
    lines = islice(_ROBOTS_LINE.finditer(_lines(body)), _MOST_LINES)
    return b"\n".join(match[0] for match in lines)


def _lines(body: bytes) -> bytes:
    return body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n")


def read_sitemap(url: str, body: bytes) -> Sitemap:
    """Return what a sitemap at `url` names: XML or a text of one address a line.

    `MOST_URLS` pages or sitemaps are returned, up to where it is broken, declares anything, or has what no honest
    one has. Nothing raises. Fifty megabytes take about a second, and whatever they are a few, so do not call it
    where others wait.
    """
    reader = _Reader(url)
    try:
        if body[:_CHUNK].lstrip().startswith(_XML):
            reader.read_xml(body)
        else:
            reader.read_text(body.replace(b"\r", b"\n"))
    except (_Refused, expat.ExpatError, ValueError, LookupError):  # the latter of encodings that are none
        pass
    return reader.sitemap


class _Refused(Exception):
    """The sitemap is full, or not an honest one."""


class _Reader:
    def __init__(self, url: str) -> None:
        self.url = url
        self.sitemap = Sitemap()
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(namespace_separator=" ", intern=self._names)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._elements = self._depth = self._length = self._image_count = self._left_out = 0
        self._text: list[str] | None = None  # of a leaf
        self._address = ""
        self._image: dict[str, str] | None = None
        self._images: list[FoundImage] = []

    def read_xml(self, body: bytes) -> None:
        """Read a sitemap in XML."""
        for start in range(0, len(body), _CHUNK):
            part = body[start : start + _CHUNK]
            self._parser.Parse(part, False)
            waiting = start + len(part) - self._parser.CurrentByteIndex
            if waiting > _LONGEST_TOKEN or len(self._names) > _MOST_NAMES:
                raise _Refused
        self._parser.Parse(b"", True)

    def read_text(self, body: bytes) -> None:
        """Read a text of one address a line, by parts: while one is searched, no other thread runs."""
        start = 0
        while start < len(body):
            end = body.rfind(b"\n", start, start + _CHUNK) + 1 or start + _CHUNK
            for line in _ADDRESS_LINE.finditer(body, start, end):
                self.add_page(line[1][: LONGEST + 1].decode(errors="replace").strip())
            start = end

    def add_page(self, address: str) -> None:
        """Add a page with the images that were read before."""
        if (url := self._url(address, len(self.sitemap.pages))) is not None:
            self.sitemap.pages.append(SitemapPage(url, tuple(self._images)))

    def _url(self, address: str, known: int) -> str | None:
        url = canonical_url(address, self.url) if address and known < MOST_URLS else None
        self._left_out += url is None
        if self._left_out >= MOST_URLS:
            raise _Refused
        return url

    def _start(self, name: str, _: dict[str, str]) -> None:
        self._elements += 1
        self._depth += 1
        if self._elements > _MOST_ELEMENTS or self._depth > _MOST_OPEN:
            raise _Refused
        name = name.rpartition(" ")[2].lower()
        self._text, self._length = [] if name in _LEAVES else None, 0
        if name in {"url", "sitemap"}:
            self._address, self._images = "", []
        elif name == "image":
            self._image = {}

    def _end(self, name: str) -> None:
        self._depth -= 1
        name = name.rpartition(" ")[2].lower()
        text, self._text = "".join(self._text or ()).strip(), None
        if name == "image":
            self._add_image(self._image or {})
            self._image = None
        elif name == "url":
            self.add_page(self._address)
        elif name == "sitemap":
            if (url := self._url(self._address, len(self.sitemap.sitemaps))) is not None:
                self.sitemap.sitemaps.append(url)
        elif text and self._image is not None:
            self._image.setdefault(name, text)
        elif text and name == "loc":
            self._address = self._address or text

    def _add_image(self, said: dict[str, str]) -> None:
        url = image_url(said["loc"], self.url) if said.get("loc") else None
        is_full = len(self._images) >= MOST_IMAGES or self._image_count >= 2 * MOST_URLS
        if url is None or is_full:
            return
        self._image_count += 1
        licence = said.get("license")
        title = " ".join((said.get("title") or said.get("caption") or "")[:500].split())
        self._images.append(
            FoundImage(url, licence_of(licence, self.url) if licence else None, title=title or None)
        )

    def _characters(self, data: str) -> None:
        if self._text is not None and self._length <= _LONGEST_TEXT:
            self._text.append(data)
            self._length += len(data)

    def _doctype(self, _name: str, _system: object, _public: object, has_declarations: int) -> None:
        if has_declarations:  # of entities, perhaps
            raise _Refused
