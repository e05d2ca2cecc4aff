"""HTML and SVG from templates. A value is escaped where it is put in: none can become markup."""

from __future__ import annotations

from html import escape

from crawlproject.texts import visible


class Markup(str):
    """A text that is HTML, and is put in as it is."""

    __slots__ = ()


def markup(template: str, *values: object, **named: object) -> Markup:
    """Return a template with values in place of each `{}` and `{name}`: of a list all items, None is nothing.

    Characters that are not printable become `?`: some are not allowed in HTML, others reverse a text.
    """
    return Markup(template.format(*map(_put_in, values), **{name: _put_in(one) for name, one in named.items()}))


def _put_in(value: object) -> str:
    match value:
        case None:
            return ""
        case Markup():
            return value
        case list():
            return "".join(map(_put_in, value))
    return escape(visible(str(value)))
