"""Scrapy's signals, of which most tell nobody anything."""

from __future__ import annotations

from typing import Any, Self

from pydispatch import dispatcher
from scrapy.crawler import Crawler
from scrapy.signalmanager import SignalManager


class Signals(SignalManager):
    """Scrapy's way to send signals, which looks first whether anybody listens.

    Who does is PyDispatcher's to know, by sender, and the crawler is the sender: this object keeps nothing.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Take the place of `crawler.signals`."""
        crawler.signals = signals = cls(crawler)
        return signals

    def send_catch_log(self, signal: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Send a signal, and log what its receivers raise."""
        known = dispatcher.connections
        heard = known.get(id(kwargs.get("sender", self.sender)), {})
        if signal in heard or dispatcher.Any in heard or id(dispatcher.Any) in known:
            return super().send_catch_log(signal, **kwargs)
        return []
