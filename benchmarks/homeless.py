"""`scrapy`, with workers that lease from all shards, whoever else is there: without homes, to compare with.

A worker does so until it knows the others; it never learns of them here.
"""

from __future__ import annotations

from collections.abc import Collection

from crawlproject.frontier.homes import Homes
from scrapy.cmdline import execute


def _note_nobody(homes: Homes, members: Collection[str]) -> None:
    """Stand for `Homes.note`."""


if __name__ == "__main__":
    Homes.note = _note_nobody  # type: ignore[method-assign, assignment]
    execute()
