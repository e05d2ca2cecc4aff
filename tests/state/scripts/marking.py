"""The seen filter of one Redis, without a crawl around it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawlproject.state import functions
from crawlproject.state.keys import Keys

KEYS = Keys("crawl", "pages")
_LIBRARY = functions.library_with(Path(__file__).with_name("mark_seen.lua").read_text())
_BATCH, _SIZE = 500, 8


class Marks:
    """Marks requests as seen, and looks whether they are."""

    def __init__(self, client: Any, capacity: int) -> None:
        self.client = client
        self.capacity = capacity
        client.function_load(_LIBRARY.text, replace=True)

    def call(self, digests: bytes, *, what: str = "mark") -> tuple[int, int]:
        """Mark requests; return how many of them were new, and how many known."""
        arguments = {"digests": digests, "what": what, "seen_capacity": self.capacity}
        new, known = self.client.execute_command(
            *functions.command("mark_seen", KEYS, arguments, library=_LIBRARY)
        )
        return new, known


def digests(seed: str, count: int) -> Iterator[bytes]:
    """Yield `count` digests, `_BATCH` in each."""
    chance = random.Random(seed)
    for first in range(0, count, _BATCH):
        yield chance.randbytes(_SIZE * min(_BATCH, count - first))
