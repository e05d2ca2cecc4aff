"""The private parts of Scrapy's engine that we use: each in one function, to be checked on an upgrade."""

from __future__ import annotations

from scrapy import Request
from scrapy.crawler import Crawler


def wake(crawler: Crawler) -> None:
    """Have the engine call `next_request` now; otherwise it does so every 5 s."""
    engine = crawler.engine
    if engine.running and engine._slot is not None:
        engine._slot.nextcall.schedule()


def is_closing(crawler: Crawler) -> bool:
    """Tell whether the engine is closing. No signal says so while requests are in flight."""
    slot = crawler.engine._slot
    return slot is None or slot.closing is not None


def is_busy(crawler: Crawler) -> bool:
    """Tell whether the engine would not send a request now: it is not yet running, or is at capacity."""
    return crawler.engine.scraper.slot is None or crawler.engine.needs_backout()


def in_progress(crawler: Crawler) -> set[Request]:
    """Return the requests between `next_request` and the end of their pipelines."""
    slot = crawler.engine._slot
    return slot.inprogress if slot is not None else set()
