"""Sitemaps (sitemaps.org, and Google's extension for images): the addresses that a site names itself."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from xml.parsers import expat

from crawlproject.pages.canonical import LONGEST, canonical_url, image_url
from crawlproject.pages.images import FoundImage
from crawlproject.pages.licences import licence_of

MAX_BYTES = 50 * 1024 * 1024  # without compression
MOST_URLS = 50_000  # of a sitemap, and sitemaps of an index
MOST_SITEMAPS = 500  # that a robots.txt leads to, and all those of a source, in indexes and all: for the caller
INDEX_DEPTH = 2  # indexes in indexes: for the caller
MOST_IMAGES = 1000  # of a page in a sitemap; of the whole sitemap two for each address that is read

_MOST_LINES = 2 * MOST_SITEMAPS  # of a robots.txt
_LEAVES = frozenset(("loc", "lastmod", "license", "title", "caption"))
_ELEMENTS = _LEAVES | {"urlset", "sitemapindex", "url", "sitemap", "image"}
_DEEPEST = 4  # elements that are listened to, in each other
# What no honest sitemap has, and what would cost time or memory without end
_MOST_ELEMENTS = 2_000_000
_MOST_OPEN = 100  # elements in each other
_MOST_NAMES = 1000  # of elements and attributes; and namespaces
_LONGEST_TOKEN = 1024 * 1024  # bytes: a tag, a comment; the parser keeps them until their end
_CHUNK = 65_536
_LONGEST_TEXT = 4 * LONGEST  # characters of an element
_ADDRESS_LINE = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t]*(https?://[^\n]*)", re.MULTILINE)
_ROBOTS_LINE = re.compile(rb"^[ \t]*sitemap[ \t]*:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_LASTMOD = re.compile(r"\d{4}-\d\d(?:-\d\d(?:T[\d:.+Z-]{4,24})?)?|\d{4}", re.ASCII)
_XML = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class SitemapPage:
    """A page in a sitemap. `lastmod` is the W3C date that it gives, None without a valid one."""

    url: str
    lastmod: str | None = None
    images: tuple[FoundImage, ...] = ()


@dataclass(slots=True)
class Sitemap:
    """What a sitemap names: pages, or the other sitemaps of an index; and how much of it is not here.

    `is_cut` says that its end was not read: it is longer than the limits, is broken there, or declares entities.
    """

    pages: list[SitemapPage] = field(default_factory=list)
    sitemaps: list[SitemapPage] = field(default_factory=list)
    left_out: int = 0
    is_cut: bool = False


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


def read_sitemap(url: str, body: bytes, *, most: int = MOST_URLS, max_bytes: int = MAX_BYTES) -> Sitemap:
    """Return what a sitemap at `url` names: XML or a text of one address a line, gzipped or not.

    `most` pages or sitemaps are returned, of the first `max_bytes` without compression. Nothing raises. Fifty
    megabytes take about a second, and whatever they are a few, so do not call it where others wait.
    """
    reader = _Reader(url, most)
    size = 0
    feed: Callable[[bytes, bool], bool] | None = None
    for part in _parts(body):
        if feed is None:
            feed = reader.feed_xml if part.lstrip().startswith(_XML) else reader.feed_text
        kept = part[: max_bytes - size]
        size += len(kept)
        if not feed(kept, False):
            break
        if size >= max_bytes:
            reader.sitemap.is_cut = True
            break
    else:
        if feed is not None:
            feed(b"", True)
    return reader.sitemap


def _parts(body: bytes) -> Iterator[bytes]:
    pieces = (body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK))
    if not body.startswith(b"\x1f\x8b"):
        yield from pieces
        return
    stream = zlib.decompressobj(wbits=31)
    try:
        for piece in pieces:
            data = piece
            while data and not stream.eof:
                yield stream.decompress(data, _CHUNK)
                data = stream.unconsumed_tail
    except zlib.error:
        return


class _Refused(Exception):
    """The sitemap declares entities, or is full."""


class _Reader:
    def __init__(self, url: str, most: int) -> None:
        self.url = url
        self.most = most
        self.sitemap = Sitemap()
        self._rest = b""
        self._path: list[str] = []
        self._depth = 0  # of elements that are not listened to
        self._text: list[str] | None = None
        self._length = 0
        self._fields: dict[str, str] = {}
        self._image: dict[str, str] = {}
        self._images: list[FoundImage] = []
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(namespace_separator=" ", intern=self._names)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartNamespaceDeclHandler = self._namespace
        self._elements = self._namespaces = self._read = self._image_count = 0

    def feed_xml(self, part: bytes, is_last: bool) -> bool:
        """Read a part of a sitemap in XML; return whether there is more to be had of it."""
        try:
            self._parser.Parse(part, is_last)
            self._read += len(part)
            if self._read - self._parser.CurrentByteIndex > _LONGEST_TOKEN or len(self._names) > _MOST_NAMES:
                raise _Refused
        except (_Refused, expat.ExpatError, ValueError, LookupError):  # the latter of encodings that are none
            self.sitemap.is_cut = True
            return False
        return True

    def feed_text(self, part: bytes, is_last: bool) -> bool:
        """Read a part of a text of one address a line; return whether there is more to be had of it."""
        *lines, self._rest = (self._rest + part).replace(b"\r", b"\n").split(b"\n")
        if is_last or len(self._rest) > _LONGEST_TEXT:
            lines.append(self._rest)
            self._rest = b""
        for match in _ADDRESS_LINE.finditer(b"\n".join(lines)):
            self._add(self.sitemap.pages, match[1][: LONGEST + 1].decode(errors="replace").strip())
            if self.sitemap.left_out >= self.most:
                self.sitemap.is_cut = True
                return False
        return True

    def _add(self, where: list[SitemapPage], address: str) -> None:
        url = canonical_url(address, self.url) if address else None
        if url is None or len(where) >= self.most:
            self.sitemap.left_out += 1
            return
        lastmod = self._fields.get("lastmod", "")
        where.append(SitemapPage(url, lastmod if _LASTMOD.fullmatch(lastmod) else None, tuple(self._images)))

    def _start(self, name: str, _: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > _MOST_ELEMENTS or self._depth > _MOST_OPEN:
            raise _Refused
        name = name.rpartition(" ")[2].lower()
        if self._depth or name not in _ELEMENTS or len(self._path) >= _DEEPEST:
            self._depth += 1
            return
        self._path.append(name)
        if name in {"url", "sitemap"}:
            self._fields, self._images = {}, []
        elif name == "image":
            self._image = {}
        self._text, self._length = [], 0

    def _end(self, _: str) -> None:
        if self._depth:
            self._depth -= 1
            return
        name = self._path.pop()
        text = "".join(self._text or ()).strip()
        self._text = None
        fields = self._image if "image" in self._path else self._fields
        if name in _LEAVES:
            fields.setdefault(name, text)
        elif name == "image":
            self._add_image()
        elif name == "url":
            self._add(self.sitemap.pages, self._fields.get("loc", ""))
        elif name == "sitemap":
            self._add(self.sitemap.sitemaps, self._fields.get("loc", ""))
        if self.sitemap.left_out >= self.most:
            raise _Refused

    def _add_image(self) -> None:
        url = image_url(self._image.get("loc", ""), self.url) if self._image.get("loc") else None
        is_full = len(self._images) >= MOST_IMAGES or self._image_count >= 2 * self.most
        if url is None or is_full:
            self.sitemap.left_out += 1
            return
        self._image_count += 1
        licence = self._image.get("license")
        title = " ".join((self._image.get("title") or self._image.get("caption") or "")[:500].split())
        self._images.append(
            FoundImage(url, licence_of(licence, self.url) if licence else None, title=title or None)
        )

    def _characters(self, data: str) -> None:
        if self._text is not None and not self._depth and self._length <= _LONGEST_TEXT:
            self._text.append(data)
            self._length += len(data)

    def _doctype(self, _name: str, _system: object, _public: object, has_declarations: int) -> None:
        if has_declarations:
            raise _Refused

    def _namespace(self, *_: object) -> None:
        self._namespaces += 1
        if self._namespaces > _MOST_ELEMENTS:
            raise _Refused

    def _refuse(self, *_: object) -> None:
        raise _Refused
