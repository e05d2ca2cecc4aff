"""Whether a body is HTML (WHATWG MIME Sniffing, sections 5 and 7, as far as it concerns HTML)."""

from __future__ import annotations

import re

_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_UNKNOWN_TYPES = frozenset(("", "unknown/unknown", "application/unknown", "*/*"))
_HEADER = 1445  # bytes that are looked at (section 5.2)

_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_TAGS = b"!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p".split(b"|")
_HTML = re.compile(rb"[\t\n\x0c\r ]*+<(?:(?:" + b"|".join(_TAGS) + rb")[ >]|!--)", re.IGNORECASE)
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
# What servers send as text/html although it is none, and has no byte that text cannot have in its first ones.
_OTHERS = (b"%PDF-", b"%!PS-", b"GIF8", b"{\\rtf", b"\xff\xd8\xff", b"RIFF", b"PK\x03\x04", b"\x1f\x8b")


def is_html(content_type: str | None, body: bytes, *, nosniff: bool = False) -> bool:
    """Tell whether a response is HTML.

    `content_type` is its header, None without one. What is declared as HTML is, unless its bytes are those of
    something else; what has no type, or an unknown one, is if it begins as HTML does, unless `nosniff`, the
    X-Content-Type-Options header, forbids to look. Any other type is believed.
    """
    essence = (content_type or "").partition(";")[0].strip().lower()
    if essence in _HTML_TYPES:
        return body.startswith(_MARKS) or not (body.startswith(_OTHERS) or _BINARY.search(body[:_HEADER]))
    if essence not in _UNKNOWN_TYPES or nosniff:
        return False
    return _HTML.match(body.removeprefix(_MARKS[0])[:_HEADER]) is not None
