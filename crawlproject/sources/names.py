"""The one spelling of a source's name."""

from __future__ import annotations

LONGEST_NAME = 128  # characters


def source_name(value: object) -> str:
    """Return the name of a source in its one spelling, lower case.

    Raises:
        ValueError: it is no text, empty, too long, or has blanks or control characters in it.

    """
    name = value.strip().lower() if isinstance(value, str) else ""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or any(c.isspace() for c in name):
        raise ValueError(f"source {value!r:.60} must be 1 to {LONGEST_NAME} printable characters without spaces")
    return name
