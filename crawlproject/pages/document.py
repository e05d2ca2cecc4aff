"""A page, decoded and parsed once, at a bounded cost."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import ada_url
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom

from crawlproject.pages.canonical import LONGEST
from crawlproject.pages.nesting import parsable

MOST_ELEMENTS = 20_000  # that are looked at, in the order of the page

# The encodings of the WHATWG standard, by the names of Python's codecs. Others it has are no encodings of texts
# (base64, which w3lib would raise at), take the square of the length (punycode), or hide markup (utf-7).
_ENCODINGS = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5hkscs", "euc-jp", "iso2022-jp", "cp932", "cp949"),
        *(
            "cp866",
            "koi8-r",
            "koi8-u",
            "mac-roman",
            "mac-cyrillic",
            "cp874",
            *(f"cp{n}" for n in range(1250, 1259)),
        ),
        *(f"iso8859-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    )
)

_WANTED = (
    "base[href],title,meta[content],link[href],a[href],area[href],iframe[src],frame[src],img,picture,source[srcset],"
    'script[type="application/ld+json" i],[rel~="license" i]:not(a):not(link),'
    '[itemprop~="license" i]:not(a):not(link)'
)
_UNSEEN = ("script", "style", "noscript", "template", "iframe", "textarea", "select", "svg")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,4}")
_LONGEST_TITLE = 500  # characters

# Without "selectedcontent", which takes the square of the options; nothing here needs it.
_OPTIONS = LexborDocumentOptions.WO_EVENTS.value


@dataclass(slots=True)
class Document:
    """A parsed page. `elements` are those that may say something about links and images, by tag, in order."""

    url: str
    base: str
    tree: LexborHTMLParser = field(repr=False)
    elements: dict[str, list[LexborNode]] = field(repr=False)

    def of(self, *tags: str) -> Iterator[LexborNode]:
        """Yield the elements of some tags, those of the first one first."""
        for tag in tags:
            yield from self.elements.get(tag, ())

    @property
    def metas(self) -> list[tuple[str, str]]:
        """Names (or properties), in lower case, and contents of the meta tags."""
        found = []
        for node in self.of("meta"):
            attributes = node.attributes
            name = attributes.get("name") or attributes.get("property")
            found.append(((name or "").strip().lower(), attributes.get("content") or ""))
        return found

    @property
    def title(self) -> str | None:
        """The title of the page, None without one."""
        node = next(self.of("title"), None)
        text = " ".join(node.text()[: 4 * _LONGEST_TITLE].split())[:_LONGEST_TITLE] if node is not None else ""
        return text or None

    @property
    def language(self) -> str | None:
        """The language that the page says it is in (BCP 47), None if it says nothing."""
        root = self.tree.css_first("html")
        attributes = root.attributes if root is not None else {}
        return language_tag(attributes.get("lang") or attributes.get("xml:lang") or "")

    def digest(self, images: Iterable[str]) -> str | None:
        """Return the digest of the visible text, white space aside, and of `images`; None without any of both.

        Pages with equal digests show the same, under whatever address. This strips the tree, so call it last.
        """
        self.tree.strip_tags(list(_UNSEEN))
        body = self.tree.body
        words = " ".join(body.text(separator=" ").split()) if body is not None else ""
        shown = "\n".join(filter(None, (words, *images)))
        return blake2b(shown.encode(errors="replace"), digest_size=16).hexdigest() if shown else None


def parse(url: str, content_type: str | None, body: bytes, max_bytes: int) -> Document:
    """Return the document in the first `max_bytes` of a body; of bytes that are no HTML, an empty one."""
    text = decoded(content_type, body[:max_bytes])
    try:
        tree = LexborHTMLParser(text[: parsable(text)], options=_OPTIONS)
    except SelectolaxError:
        tree = LexborHTMLParser("")
    elements: dict[str, list[LexborNode]] = {}
    for node in tree.css(_WANTED)[:MOST_ELEMENTS]:
        elements.setdefault(node.tag or "", []).append(node)
    return Document(url, _base(url, elements), tree, elements)


def decoded(content_type: str | None, body: bytes) -> str:
    """Return the text of a body.

    A byte order mark decides, then the Content-Type, then what the page declares of itself; without any it is
    UTF-8 if it can be, else windows-1252. Not w3lib.html_to_unicode, which raises at an encoding such as
    base64.
    """
    marked, mark = read_bom(body)
    declared = (marked, http_content_type_encoding(content_type), html_body_declared_encoding(body))
    encoding = next((name for name in declared if name in _ENCODINGS), None)
    if mark is not None and encoding == marked:
        body = body[len(mark) :]
    if encoding is not None:
        return body.decode(encoding, "replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body)  # a last character may be cut off
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def language_tag(said: str) -> str | None:
    """Return a language tag (BCP 47) in a text, None if it is none."""
    match = _LANGUAGE.fullmatch(said[:60].strip().replace("_", "-"))
    return match[0] if match else None


def _base(url: str, elements: dict[str, list[LexborNode]]) -> str:
    """Return what links are joined to: the first base element's, if that is an address on the web."""
    for node in elements.get("base", ())[:1]:
        href = (node.attributes.get("href") or "").strip()
        if len(href) <= LONGEST:
            try:
                joined = ada_url.join_url(url, href)
            except ValueError:
                continue
            if joined.startswith(("http://", "https://")):
                return joined
    return url
