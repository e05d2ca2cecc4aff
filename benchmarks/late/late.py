"""A Scrapy extension that notes how late timers and gate of this worker are, in ms; LATE_FILE gets it as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Self

from scrapy import Request, signals
from scrapy.crawler import Crawler

from crawlproject.models import LEASE

_EVERY_S = 0.01


class Late:
    """Notes them while the spider is open."""

    def __init__(self, crawler: Crawler) -> None:
        self.timers: list[float] = []
        self.gate: list[float] = []
        for name in ("spider_opened", "spider_closed", "request_reached_downloader"):
            crawler.signals.connect(getattr(self, name), signal=getattr(signals, name))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the extension of `crawler`."""
        return cls(crawler)

    def spider_opened(self) -> None:
        """Begin."""
        self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self.timers.append((loop.time() - due) * 1000)

    def request_reached_downloader(self, request: Request) -> None:
        """Note by how much a request leaves the scheduler after its slot."""
        if (lease := request.meta.get(LEASE)) is not None:
            self.gate.append((asyncio.get_running_loop().time() - lease.slot) * 1000)

    def spider_closed(self) -> None:
        """Write what was noted."""
        self._ticking.cancel()
        Path(os.environ["LATE_FILE"]).write_text(json.dumps({"timers": self.timers, "gate": self.gate}))
