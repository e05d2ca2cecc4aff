"""The private doors of Scrapy's engine that we need: each in one function, to be looked at on an upgrade."""

from __future__ import annotations

from scrapy import Request
from scrapy.crawler import Crawler


def wake(crawler: Crawler) -> None:
    """Have the engine ask for the next request now; by itself it looks every 5 s."""
    engine = crawler.engine
    if engine.running and engine._slot is not None:
        engine._slot.nextcall.schedule()


def is_closing(crawler: Crawler) -> bool:
    """Tell whether the engine takes no more requests. No signal says so while requests are in flight."""
    slot = crawler.engine._slot
    return slot is None or slot.closing is not None


def is_busy(crawler: Crawler) -> bool:
    """Tell whether the engine would not send a request now: not yet running, or its hands are full."""
    return crawler.engine.scraper.slot is None or crawler.engine.needs_backout()


def in_progress(crawler: Crawler) -> set[Request]:
    """Return the requests between `next_request` and the end of their pipelines."""
    slot = crawler.engine._slot
    return slot.inprogress if slot is not None else set()
