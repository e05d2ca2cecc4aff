"""Whole numbers in Redis, where others than crawlproject may have written anything."""

from __future__ import annotations


def whole_number(value: bytes | None) -> int | None:
    """Return the value of a counter, None where there is none or something else."""
    if value is None or len(value) >= 20 or not value.removeprefix(b"-").isdigit():
        return None
    return int(value)
