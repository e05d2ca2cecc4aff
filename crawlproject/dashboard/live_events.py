"""What open pages are sent: server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from crawlproject.dashboard.recent import Recent
from crawlproject.loops import Loops
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.status.reporter import INTERVAL_S, STALE_S, Reporter
from crawlproject.status.snapshot import Snapshot
from crawlproject.texts import one_line

MOST_PAGES = 64  # open at a time; one more, and the oldest is let go
_HISTORY = int(1800 / INTERVAL_S)  # snapshots: the half hour that the chart shows
_LOOK_S = 0.25  # between checks for a new snapshot
_PING = 40  # checks


@implementer(IPushProducer)
class Page:
    """An open page. While it does not read, nothing piles up; when it reads again, it gets the newest events."""

    def __init__(self, feed: Feed, request: Any, session: str) -> None:
        self.feed = feed
        self.request = request
        self.session = session
        self._paused = False
        self._missed = False
        request.registerProducer(self, True)
        request.notifyFinish().addBoth(lambda _: feed.pages.pop(self, None))

    def send(self, *events: bytes) -> None:
        """Send events, if the page reads."""
        if self._paused:
            self._missed = True
        else:
            self.request.write(b"".join(events))

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send nothing for a while."""
        self._paused = True

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send the newest events, if any came meanwhile: writing the last ones may itself have paused the page."""
        self._paused = False
        if self._missed:
            self._missed = False
            self.send(self.feed.snapshot, self.feed.recent)

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Send nothing more."""
        self.feed.pages.pop(self, None)

    def close(self) -> None:
        """End the page's connection; a page that is still there opens another."""
        self.feed.pages.pop(self, None)
        self.request.unregisterProducer()
        self.request.finish()


class Feed:
    """Turns each snapshot of a reporter into events for all open pages."""

    def __init__(self, state: State, reporter: Reporter) -> None:
        self.state = state
        self.reporter = reporter
        self.pages: dict[Page, None] = {}  # the oldest first
        self.snapshot = b""
        self.recent = b""
        self._recent = Recent(state)
        self._history: deque[tuple[str, float, float]] = deque(maxlen=_HISTORY)
        self._seen: Snapshot | None = None
        self._looks = 0
        self._loops = Loops(state)

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

    async def open(self, request: Any, session: str, hello: dict[str, Any]) -> None:
        """Send events to a page of `session` from now on: `hello`, what all pages need, and the newest."""
        gone: list[Any] = []
        request.notifyFinish().addBoth(gone.append)
        if not self.pages:  # recent events are read only while a page is open
            await self._read_recent()
        if gone:
            return
        page = Page(self, request, session)
        self.pages[page] = None
        if len(self.pages) > MOST_PAGES:
            next(iter(self.pages)).close()
        hello = {
            **hello,
            "history": list(self._history),
            "spider": self.state.keys.spider,
            "stale_s": STALE_S,
        }
        page.send(b"retry: 2000\n", event("hello", hello), self.snapshot, self.recent)

    async def _read_recent(self) -> None:
        try:
            self.recent = event("recent", await self._recent.look())
        except REDIS_TROUBLE as error:
            self.state.failed(error)

    async def _step(self) -> None:
        await asyncio.sleep(_LOOK_S)
        self._looks = (self._looks + 1) % _PING
        if self._looks == 0:
            self._send(b": still here\n\n")
        latest = self.reporter.latest
        if latest is None or latest is self._seen:
            return
        self._seen = latest
        self._history.append((latest.time, latest.general.success_rps, latest.general.error_rps))
        self.snapshot = event("snapshot", latest.as_event())
        self._send(self.snapshot)
        if self.pages:
            await self._read_recent()
            self._send(self.recent)

    def _send(self, events: bytes) -> None:
        for page in list(self.pages):
            page.send(events)


def event(name: str, data: Any) -> bytes:
    """Return an event as it goes over the wire; its data is one line."""
    return f"event: {name}\ndata: {one_line(data)}\n\n".encode()
