"""The normalised name of a source."""

from __future__ import annotations

LONGEST_NAME = 128  # characters


def source_name(value: object) -> str:
    """Return the name of a source, normalised to lower case.

    Raises:
        ValueError: it is not a string, is empty or too long, or has spaces or control characters in it.

    """
    name = value.strip().lower() if isinstance(value, str) else ""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or any(c.isspace() for c in name):
        raise ValueError(f"source {value!r:.60} must be 1 to {LONGEST_NAME} printable characters without spaces")
    return name
