"""How far a crawl is, as one line for people, and which sources make it slow."""

from __future__ import annotations

import math
from collections import deque
from datetime import timedelta

from crawlproject.status.snapshot import CrawlSample, eta
from crawlproject.status.source_status import SUCCESSES, SourceRow, digits, said_of_minimum
from crawlproject.texts import counted, printable

_SPAN_S = 10.0  # that the rate is over
_STARTS_S = 15.0  # until the leader has read a catalogue, which need not worry anybody
_SLOWEST = 3  # sources
_UNITS = {"images": "images", "pages": "pages"}  # by spider; of others, requests


class Progress:
    """What a crawl has done since the first sample of what it has been given.

    With `whole`, since it began; then a retried dead letter counts once, by what became of it.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._is_whole = whole
        self._before: dict[str, int] | None = {} if whole else None
        self._seen: deque[tuple[float, int]] = deque()
        self._since = math.inf
        self._ended: dict[str, tuple[float, SourceRow]] = {}  # when a source was last seen with work, and how

    def line(self, sample: CrawlSample) -> str:
        """Return the line, as in `412/500 images, 38/s, 10 gone, 2 failed, 3 sources, ETA 0:03`."""
        overview, spider = sample.overview, sample.spider
        if self._before is None:
            self._before = dict(overview.totals)
        self._since = min(self._since, overview.now)
        good = self._grown(sample, *(SUCCESSES if spider in _UNITS else ("fetched",)))
        gone = self._grown(sample, "link_rot")
        good -= 0 if spider in _UNITS else gone  # of others, it is fetched as well
        failed = overview.dead if self._is_whole else self._grown(sample, "failed")
        done = good + gone + failed
        left = overview.outstanding + overview.overflow + overview.seeds
        rate = self._rate(overview.now, done)
        working = [row for row in sample.sources.values() if row.work]
        self._ended |= {row.source: (overview.now, row) for row in working}
        parts = [f"{done}/{done + left} {_UNITS.get(spider, 'requests')}", f"{_digits(rate)}/s"]
        parts += [f"{count} {what}" for count, what in ((gone, "gone"), (failed, "failed")) if count]
        parts += [counted(count, "source")] if (count := max(len(working), overview.due)) else []
        if left and (seconds := eta(sample)) is not None:
            parts.append(f"ETA {_clock(max(seconds, left / rate if rate else 0))}")
        if said_of_minimum(working):
            slowest = max(working, key=lambda row: row.eta_s or 0)
            parts.append(f"slow: {printable(slowest.source)} ({digits(slowest.effective_rate)}/s)")
        if left and (reason := overview.pause.reason):
            has_begun = overview.pause.kind not in {"no pulse", "no worker"}
            is_starting = not has_begun and overview.now < self._since + _STARTS_S
            parts.append("starting" if is_starting else f"NOTHING GOES OUT: {reason}")
        return ", ".join(parts)

    def slowest(self) -> list[str]:
        """Return the sources that had work for longest, with how long, and the reason for their rate."""
        found = sorted(self._ended.values(), key=lambda one: -one[0])[:_SLOWEST]
        return [
            f"{printable(row.source)} had work for {_clock(at - self._since)}, "
            f"at {digits(row.effective_rate)} requests a second ({row.reason})"
            for at, row in found
        ]

    def _grown(self, sample: CrawlSample, *names: str) -> int:
        before, now = self._before or {}, sample.overview.totals
        return sum(max(now.get(name, 0) - before.get(name, 0), 0) for name in names)

    def _rate(self, now: float, done: int) -> float:
        if self._seen and done == self._seen[0][1]:
            self._seen.clear()  # nothing is done yet: the time until workers have started is not a crawl's
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _SPAN_S:
            self._seen.popleft()
        at, before = self._seen[0]
        return (done - before) / (now - at) if now > at else 0.0


def _clock(seconds: float) -> str:
    if seconds >= 86_400:
        return f"{seconds / 86_400:.1f} days"
    return str(timedelta(seconds=math.ceil(seconds))).removeprefix("0:").removeprefix("0")


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
