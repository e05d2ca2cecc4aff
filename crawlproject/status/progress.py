"""How far a crawl is, as one line for people, and which sources make it slow."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from datetime import timedelta

from crawlproject.sources.rates import MINIMUM_RATE
from crawlproject.status.snapshot import CrawlSample, eta
from crawlproject.status.source_status import SUCCESSES, SourceRow
from crawlproject.texts import counted, printable, scrapy_command

_SPAN_S = 10.0  # that the rate is over
_SLOW_S = 60.0  # of work left, from which a source is called slow
_MOST = 3  # sources that are told of
_UNITS = {"images": "images", "pages": "pages"}  # by spider; of others, requests
_IF = "if it is yours, or its owner agrees"


class Progress:
    """What a crawl has done since `begin` of what it has been given, from one sample to the next.

    With `whole`, since the crawl began.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._before: dict[str, int] | None = {} if whole else None
        self._seen: deque[tuple[float, int]] = deque()
        self._told: set[str] = set()
        self._ended: dict[str, tuple[float, SourceRow]] = {}  # when a source was last seen with work, and how
        self._began = 0.0

    def line(self, sample: CrawlSample) -> str:
        """Return the line, as in `412/500 images, 38/s, 10 gone, 2 failed, 3 sources, ETA 0:03`."""
        overview = sample.overview
        if self._before is None:
            self._before = dict(overview.totals)
        self._began = self._began or overview.now
        gone, failed = self._grown(sample, "link_rot"), self._grown(sample, "failed")
        good = self._grown(sample, *(SUCCESSES if sample.spider in _UNITS else ("fetched",)))
        if sample.spider not in _UNITS:
            gone = 0  # fetched as well
        done = good + gone + failed
        left = overview.outstanding + overview.overflow + overview.seeds
        rate = self._rate(overview.now, done)
        working = [one.row for one in sample.sources.values() if one.row.work]
        for row in working:
            self._ended[row.source] = overview.now, row
        parts = [f"{done}/{done + left} {_UNITS.get(sample.spider, 'requests')}", f"{_digits(rate)}/s"]
        parts += [f"{gone} gone"] if gone else []
        parts += [f"{failed} failed"] if failed else []
        parts += [counted(count, "source")] if (count := max(len(working), overview.due)) else []
        if left:
            parts.append(f"ETA {_short(_longer(eta(sample), left / rate if rate else None))}")
            slowest = next(_slow(working), None)
            parts += [f"slow: {printable(slowest.source)} ({slowest.effective_rate:g}/s)"] if slowest else []
        if reason := overview.pause.reason:
            parts.append(f"NOTHING GOES OUT: {reason}")
        return ", ".join(parts)

    def news(self, sample: CrawlSample) -> list[str]:
        """Return what is to be said once: which sources are slow, and the remedy."""
        rows = [row for row in _slow(one.row for one in sample.sources.values()) if row.source not in self._told]
        rows = rows[: max(_MOST - len(self._told), 0)]
        self._told |= {row.source for row in rows}
        return [f"{printable(row.source)}: {_reason(row)}" for row in rows]

    def slowest(self) -> list[str]:
        """Return the sources that were worked at longest, how long, and why."""
        found = sorted(self._ended.values(), key=lambda one: -one[0])[:_MOST]
        return [
            f"{printable(row.source)}: {_short(at - self._began)} at {row.effective_rate:g}/s; {_reason(row)}"
            for at, row in found
        ]

    def _grown(self, sample: CrawlSample, *names: str) -> int:
        before, now = self._before or {}, sample.overview.totals
        return sum(max(now.get(name, 0) - before.get(name, 0), 0) for name in names)

    def _rate(self, now: float, done: int) -> float:
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _SPAN_S:
            self._seen.popleft()
        at, before = self._seen[0]
        return (done - before) / (now - at) if now > at else 0.0


def _slow(rows: Iterator[SourceRow] | list[SourceRow]) -> Iterator[SourceRow]:
    """Yield those that take longest, of those that take a while because nothing is known of their size."""
    slow = [row for row in rows if _is_at_minimum(row) and (row.eta_s or 0) > _SLOW_S]
    yield from sorted(slow, key=lambda row: -(row.eta_s or 0))


def _is_at_minimum(row: SourceRow) -> bool:
    return row.reason.startswith("minimum") and row.rate_limit <= MINIMUM_RATE


def _reason(row: SourceRow) -> str:
    """Say why a source is slow, and what helps."""
    if not _is_at_minimum(row):
        return row.reason
    left = f", {counted(row.work, 'request')} left, {_short(row.eta_s)}" if row.work else ""
    remedy = scrapy_command("rate", of=[row.source, "5"])
    return f"its size is unknown, so it gets {row.effective_rate:g} requests/s{left}; {_IF}: {remedy}"


def _longer(one: float | None, other: float | None) -> float | None:
    known = [seconds for seconds in (one, other) if seconds is not None]
    return None if one is None else max(known)


def _short(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds >= 86_400:
        return f"{seconds / 86_400:.1f} days"
    return str(timedelta(seconds=math.ceil(seconds))).removeprefix("0:").removeprefix("0")


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
