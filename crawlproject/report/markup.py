"""Elements of HTML and SVG. Texts are escaped where they are written out: none of them can become markup."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

from crawlproject.texts import visible

Child = Element | str | None


def make(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element with its children, None for nothing. `class_` is `class`, `_` stands for `-`.

    Characters that are not printable become `?`: some are not allowed in HTML, others reverse a text.
    """
    one = Element(
        tag, {name.rstrip("_").replace("_", "-"): visible(str(value)) for name, value in attributes.items()}
    )
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            one.append(child)
            last = child
        elif child is not None:
            text = visible(child)
            if last is None:
                one.text = (one.text or "") + text
            else:
                last.tail = (last.tail or "") + text
    return one


def written(document: Element) -> bytes:
    """Return an HTML document in UTF-8. A `style` is written as it is: no stranger's text belongs there."""
    text: bytes = tostring(document, encoding="utf-8", method="html")
    return b"<!DOCTYPE html>\n" + text + b"\n"
