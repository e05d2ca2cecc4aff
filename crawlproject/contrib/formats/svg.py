"""The size of an SVG, by the start tag of its root element. Nothing is rendered, nothing after that tag is read.

Expat reads it: it builds no tree, and opens no files or connections, whereas lxml is able to do all of this.
Entities cannot multiply: a document that declares one is refused, as defusedxml does, whose parsers are made for
whole documents.
"""

from __future__ import annotations

import codecs
import re
import zlib
from contextlib import suppress
from encodings.aliases import aliases
from xml.parsers import expat

from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import FileType, Format

NAMESPACE = "http://www.w3.org/2000/svg"
MAX_BYTES = 262_144  # the root's start tag ends within these; only comments and scripts' output come near
MAX_SIDE = 2**31 - 1  # as in a PNG

# Pixels in each unit of CSS. Those relative to a font are of the initial one, of 16 pixels.
_PIXELS = {
    **{"": 1.0, "px": 1.0, "in": 96.0, "cm": 96 / 2.54, "mm": 9.6 / 2.54, "q": 2.4 / 2.54, "pt": 96 / 72},
    **{"pc": 16.0, "em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0},
}
_NUMBER = r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?\d++)?+"
_LENGTH = re.compile(rf"\s*+({_NUMBER})\s*+([a-z]*+)\s*+", re.IGNORECASE | re.ASCII)
_BOX = re.compile(
    rf"\s*+{_NUMBER}[\s,]++{_NUMBER}[\s,]++({_NUMBER})[\s,]++({_NUMBER})\s*+", re.IGNORECASE | re.ASCII
)
_LONGEST = 200  # characters of an attribute; none needs more

_MARKUP = (
    b"<",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
)  # the beginnings of an XML document, but for white space


def load_encodings() -> None:
    """Import now what encodings expat may ask Python for, rather than with the first document in each."""
    for name in sorted(set(aliases.values())):
        with suppress(LookupError):  # of other systems
            codecs.lookup(name)


class _Found(Exception):
    """The root element: its name with its namespace, and its attributes."""


def read_size(body: bytes) -> tuple[int, int] | None:
    """Return width and height of an SVG in pixels; None if the body is something else.

    `width` and `height` decide. What they leave open (percentages, `auto`, or no value at all) follows from the
    `viewBox`. Half pixels are rounded up. Raises UnreadableImage for an SVG without a size, or with entities.
    """
    if body.startswith(b"\x1f\x8b"):
        try:
            body = zlib.decompressobj(wbits=31).decompress(body, MAX_BYTES)
        except zlib.error:
            return None
    if not body[:64].lstrip().startswith(_MARKUP):
        return None
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = _found
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(body[:MAX_BYTES], False)
    except _Found as found:
        name, attributes = found.args
        return _size(attributes) if name == f"{NAMESPACE} svg" else None
    except (expat.ExpatError, ValueError, LookupError):  # not XML; an encoding that is none
        return None
    return None


def _found(name: str, attributes: dict[str, str]) -> None:
    raise _Found(name, attributes)


def _refuse(*_: object) -> None:
    raise UnreadableImage("SVG: it declares entities, which are not expanded")


def _size(attributes: dict[str, str]) -> tuple[int, int]:
    width, height = (_length(attributes.get(side, "")) for side in ("width", "height"))
    box = _BOX.fullmatch(attributes.get("viewBox", "")[:_LONGEST])
    across, down = map(float, box.groups()) if box else (0.0, 0.0)
    if across > 0 and down > 0:
        if width is None:
            width = across if height is None else height * across / down
        if height is None:
            height = width * down / across
    if width is None or height is None:
        raise UnreadableImage("SVG: neither width and height nor a viewBox that say how large it is")
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise UnreadableImage(f"SVG: no picture is {width:g} x {height:g} pixels large")
    return max(1, int(width + 0.5)), max(1, int(height + 0.5))


def _length(value: str) -> float | None:
    """Return a length in pixels; None where it depends on what is around the picture."""
    found = _LENGTH.fullmatch(value[:_LONGEST])
    pixels = _PIXELS.get(found[2].lower()) if found else None
    return float(found[1]) * pixels if found and pixels is not None else None


FORMAT = Format(
    file=FileType(".svg", "image/svg+xml"),
    begins=re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--[^>]*>\s*)?<(!DOCTYPE )?svg[\s>]"),
    load=load_encodings,
    read_size=read_size,
)
