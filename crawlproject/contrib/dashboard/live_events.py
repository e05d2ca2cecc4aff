"""What open pages are sent: server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from crawlproject.contrib.dashboard.recent import read_recent
from crawlproject.runtime import Loops
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.status.reporter import INTERVAL_S, STALE_S, Reporter
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import Snapshot
from crawlproject.texts import one_line

MOST_PAGES = 64  # open at a time; one more, and the oldest is let go
_HISTORY = int(1800 / INTERVAL_S)  # snapshots: the half hour that the chart shows
_LOOK_S = 0.25  # between checks for a new snapshot
_PING = 40  # checks


class Crawl:
    """What pages are sent of one spider's crawl."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.history: deque[tuple[str, float, float]] = deque(maxlen=_HISTORY)
        self.snapshot = b""
        self.recent = b""
        self._seen: Snapshot | None = None

    def has_news(self) -> bool:
        """Tell whether there is a new snapshot, which is then the one to send."""
        latest = self.survey.made
        if latest is None or latest is self._seen:
            return False
        self._seen = latest
        self.history.append((latest.time, latest.general["success_rps"], latest.general["error_rps"]))
        self.snapshot = event("snapshot", latest.as_event())
        return True

    def in_short(self) -> dict[str, Any]:
        """Return what the page shows of it where another crawl is chosen."""
        general = None if self._seen is None else self._seen.general
        return {
            "spider": self.survey.state.keys.spider,
            "success_rps": general and general["success_rps"],
            # Without workers it is in trouble if it has work: then it is paused.
            "trouble": bool(general and set(general["trouble"]) - {"workers"}),
        }

    async def read_recent(self) -> None:
        """Read what happened lately."""
        try:
            found = await read_recent(self.survey.state)
            self.recent = event("recent", {"spider": self.survey.state.keys.spider, **found})
        except REDIS_TROUBLE as error:
            self.survey.state.failed(error)


@implementer(IPushProducer)
class Page:
    """An open page, of some crawls. While it does not read, nothing piles up; later it gets the newest events."""

    def __init__(self, feed: Feed, request: Any, session: str, crawls: Sequence[Crawl]) -> None:
        self.feed = feed
        self.request = request
        self.session = session
        self.crawls = crawls
        self._paused = False
        self._sent: Sequence[bytes] = ()  # the newest events, of those that it has got
        request.registerProducer(self, True)
        request.notifyFinish().addBoth(lambda _: feed.pages.pop(self, None))

    def send(self, *first: bytes) -> None:
        """Send `first`, and the newest events that it has not got, if it reads."""
        if self._paused:
            return
        newest = [self.feed.in_short(), *(part for one in self.crawls for part in (one.snapshot, one.recent))]
        new = [part for part in newest if part not in self._sent]
        self._sent = newest  # first: writing may itself pause the page
        self.request.write(b"".join((*first, *new)))

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send nothing for a while."""
        self._paused = True

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send what came meanwhile."""
        self._paused = False
        self.send()

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send nothing more."""
        self.feed.pages.pop(self, None)

    def close(self) -> None:
        """End the page's connection; a page that is still there opens another."""
        self.feed.pages.pop(self, None)
        self.request.unregisterProducer()
        self.request.finish()


class Feed:
    """Turns each snapshot of a reporter into events for the open pages that show its crawl."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.pages: dict[Page, None] = {}  # the oldest first
        self._crawls: dict[str, Crawl] = {}
        self._looks = 0
        self._loops = Loops(reporter.state)

    def start(self) -> None:
        """Start sending snapshots."""
        self._loops.start(self._step)

    async def stop(self) -> None:
        """Send nothing more, and close the pages' connections."""
        await self._loops.stop()
        for page in list(self.pages):
            page.close()

    def close(self, session: str) -> None:
        """Close the connections of a session's pages."""
        for page in list(self.pages):
            if page.session == session:
                page.close()

    def crawls(self) -> dict[str, Crawl]:
        """Return the crawls that are reported on, by spider."""
        for name, survey in self.reporter.surveys.items():
            if name not in self._crawls:
                self._crawls[name] = Crawl(survey)
        return self._crawls

    def in_short(self) -> bytes:
        """Return the event that tells of all crawls, for pages to choose from."""
        return event("spiders", [crawl.in_short() for crawl in self.crawls().values()])

    async def open(self, request: Any, session: str, spiders: Sequence[str], hello: dict[str, Any]) -> None:
        """Send events to a page of `session` from now on: `hello`, what all pages need, and the newest.

        `spiders`: whose crawls it shows; each is one that is reported on.
        """
        gone: list[Any] = []
        request.notifyFinish().addBoth(gone.append)
        crawls = [self.crawls()[name] for name in spiders]
        for crawl in crawls:
            if not self._is_shown(crawl):  # recent events are read only while a page shows them
                await crawl.read_recent()
        if gone:
            return
        page = Page(self, request, session, crawls)
        self.pages[page] = None
        if len(self.pages) > MOST_PAGES:
            next(iter(self.pages)).close()
        hello = {
            **hello,
            "spiders": list(spiders),
            "histories": {name: list(crawl.history) for name, crawl in zip(spiders, crawls, strict=True)},
            "stale_s": STALE_S,
        }
        page.send(b"retry: 2000\n", event("hello", hello))

    def _is_shown(self, crawl: Crawl) -> bool:
        return any(crawl in page.crawls for page in self.pages)

    async def _step(self) -> None:
        await asyncio.sleep(_LOOK_S)
        self._looks = (self._looks + 1) % _PING
        if self._looks == 0:
            self._send(b": still here\n\n")
        news = [crawl for crawl in self.crawls().values() if crawl.has_news()]
        if not news:
            return
        self._send()
        for crawl in filter(self._is_shown, news):
            await crawl.read_recent()
        self._send()

    def _send(self, *first: bytes) -> None:
        for page in list(self.pages):
            page.send(*first)


def event(name: str, data: Any) -> bytes:
    """Return an event as it goes over the wire; its data is one line."""
    return f"event: {name}\ndata: {one_line(data)}\n\n".encode()
