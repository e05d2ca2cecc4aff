"""A page, decoded and parsed once, at a bounded cost."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

import ada_url
from lxml import etree
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom

from crawlproject.pages.canonical import LONGEST

MOST_ELEMENTS = 20_000  # that are looked at, in the order of the page
_MOST_ATTRIBUTES = 1000  # of an element: libxml2 takes the square of them
_FEW_QUOTED = 4
_MOST_STEPS = 100  # beginnings and ends of elements that are looked at for the text in one

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

# Elements with one of these attributes, without which they say nothing; "": with or without any.
WANTED = {
    **dict.fromkeys(("title", "img", "picture", "script"), ""),
    **dict.fromkeys(("base", "link", "a", "area"), "href"),
    **{"meta": "content", "iframe": "src", "frame": "src", "source": "srcset"},
}
_TELLING = etree.XPath("//@rel/..|//@itemprop/..|//@property/..")  # in half the time of one with conditions
_UNSEEN = ("script", "style", "noscript", "iframe", "textarea", "select", "svg")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,4}")
_LONGEST_TITLE = 500  # characters

# What may end an attribute, and a ">" in quotes, which ends no tag.
_ATTRIBUTE_END = re.compile(rb"[\t\n\f\r /\"']")
_QUOTED_END = re.compile(rb"=\s*+(?:\"[^\">]*+>|'[^'>]*+>)")


@dataclass(slots=True)
class Document:
    """A parsed page.

    `elements` are those that may say something about links and images, by tag, in order, `telling` those that name
    a relation or a property.
    """

    url: str
    base: str
    root: etree._Element = field(repr=False)
    elements: dict[str, list[etree._Element]] = field(repr=False)
    telling: list[etree._Element] = field(repr=False)

    def of(self, *tags: str) -> Iterator[etree._Element]:
        """Yield the elements of some tags, those of the first one first."""
        for tag in tags:
            yield from self.elements.get(tag, ())

    @property
    def metas(self) -> list[tuple[str, str]]:
        """Names (or properties), in lower case, and contents of the meta tags."""
        found = []
        for node in self.of("meta"):
            name = node.get("name") or node.get("property") or ""
            found.append((name.strip().lower(), node.get("content")))
        return found

    @property
    def title(self) -> str | None:
        """The title of the page, None without one."""
        node = next(self.of("title"), None)
        return None if node is None else text_of(node, _LONGEST_TITLE) or None

    @property
    def language(self) -> str | None:
        """The language that the page says it is in (BCP 47), None if it says nothing."""
        return language_tag(self.root.get("lang") or self.root.get("xml:lang") or "")

    def digest(self, images: Iterable[str]) -> str | None:
        """Return the digest of the visible text, white space aside, and of `images`; None without any of both.

        Pages with equal digests show the same, under whatever address. This strips the tree, so call it last.
        """
        etree.strip_elements(self.root, *_UNSEEN, with_tail=False)
        body = self.root.find("body")
        text = "" if body is None else etree.tostring(body, method="text", encoding="unicode", with_tail=False)
        words = " ".join(text.split())
        shown = "\n".join(filter(None, (words, *images)))
        return blake2b(shown.encode(errors="replace"), digest_size=16).hexdigest() if shown else None


def parse(url: str, content_type: str | None, body: bytes) -> Document:
    """Return the document in a body; of bytes that are no HTML, an empty one.

    So is one with an element of more attributes than honest ones have: it would take seconds. All else libxml2
    parses in linear time; it ends where elements are nested 2,048 deep.
    """
    markup = decoded(content_type, body).encode()
    root = None if _has_many_attributes(markup) else _parsed(markup, None)
    if root is None:
        root = etree.Element("html")
    etree.strip_elements(root, "template", with_tail=False)
    elements: dict[str, list[etree._Element]] = {}
    for node in islice(root.iter(*WANTED), MOST_ELEMENTS):
        if not (needed := WANTED[node.tag]) or node.get(needed):
            elements.setdefault(node.tag, []).append(node)
    return Document(url, _base(url, elements), root, elements, _TELLING(root)[:MOST_ELEMENTS])


def text_of(node: etree._Element, longest: int) -> str:
    """Return the first characters of the text in an element and in those in it, its words one blank apart."""
    parts: list[str] = []
    left = 4 * longest  # with white space; elements may be in each other: no one of them is read to its end
    for event, one in islice(etree.iterwalk(node, ("start", "end")), _MOST_STEPS):
        text = one.text if event == "start" else one.tail if one is not node else None
        if text:
            parts.append(text[:left])
            left -= len(parts[-1])
            if left <= 0:
                break
    return " ".join("".join(parts).split())[:longest]


class _Attributes:
    """A target of a parser that makes no tree: it raises where an element has too many attributes."""

    def start(self, _tag: str, attributes: Mapping[str, str]) -> None:
        if len(attributes) > _MOST_ATTRIBUTES:
            raise ValueError("too many attributes")

    def close(self) -> None:
        """Do nothing: there is no tree."""


def _has_many_attributes(markup: bytes) -> bool:
    """Tell whether an element has too many attributes, by a second parser only where one may."""
    quoted = len(list(islice(_QUOTED_END.finditer(markup), _FEW_QUOTED + 1)))
    if quoted <= _FEW_QUOTED:
        if not _has_long_part(markup):
            return False
        parts = markup.split(b">")  # a tag is within one of them, but for a few with a ">" in quotes
        long = (part for part in parts if len(part) > _MOST_ATTRIBUTES)
        ends = (_ATTRIBUTE_END.findall(part, 0 if quoted else part.find(b"<") + 1) for part in long)
        if all(len(each) <= _MOST_ATTRIBUTES for each in ends):
            return False
    try:
        _parsed(markup, _Attributes())
    except ValueError:
        return True
    return False


def _has_long_part(markup: bytes) -> bool:
    """Tell whether there may be as many bytes without a ">" as an element of too many attributes has."""
    at = 0
    while len(markup) - at > _MOST_ATTRIBUTES:
        at = markup.rfind(b">", at, at + _MOST_ATTRIBUTES + 1) + 1
        if at == 0:
            return True
    return False


def _parsed(markup: bytes, target: _Attributes | None) -> etree._Element | None:
    options = {"encoding": "utf-8", "huge_tree": True, "remove_comments": True, "remove_pis": True}
    try:
        return etree.fromstring(markup, etree.HTMLParser(target=target, **options))
    except etree.XMLSyntaxError:  # there is nothing in it
        return None


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


def _base(url: str, elements: dict[str, list[etree._Element]]) -> str:
    """Return what links are joined to: the first base element's, if that is an address on the web."""
    for node in elements.get("base", ())[:1]:
        href = node.get("href").strip()
        if len(href) <= LONGEST:
            try:
                joined = ada_url.join_url(url, href)
            except ValueError:
                continue
            if joined.startswith(("http://", "https://")):
                return joined
    return url
