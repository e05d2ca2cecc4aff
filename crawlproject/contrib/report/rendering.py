"""The page of a report: for the admin of the site that it is about, who knows nothing of us."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from rich.filesize import decimal

from crawlproject.contrib.report.charts import Bar, charted
from crawlproject.contrib.report.site_report import UnknownSource, site_report
from crawlproject.documents import Document
from crawlproject.models import OPT_OUTS
from crawlproject.state.client import State
from crawlproject.texts import grouped

_HOURS_SHOWN = 168  # in the charts: a week


@cache
def _document() -> Document:
    return Document("crawlproject.contrib.report", number=grouped, size=decimal, charted=charted)


async def page_of(state: State, source: str) -> tuple[bytes, str]:
    """Return the page about a source, and its Content-Security-Policy.

    Raises:
        LookupError: there is nothing to report on.

    """
    try:
        report = await site_report(state, source)
    except UnknownSource as error:
        raise LookupError(str(error)) from None
    return await asyncio.to_thread(page, report), _document().policy


def page(report: Mapping[str, Any]) -> bytes:
    """Return a report, as `site_report` makes it, as a document."""
    gone = frozenset(map(str, report["gone"]))
    asked = [hour for hour in report["hours"] if hour["requests"]]
    requests, peaks = _by_hour(asked)
    return _document().render(
        **report,
        headers=sorted({OPT_OUTS[name] for name in report["who"]["opt_outs"] if name in OPT_OUTS}),
        kind_of=lambda result: _kind_of(result, gone),
        not_good=lambda results: sum(n for name, n in results.items() if _kind_of(name, gone) != "good"),
        requests_by_hour=requests,
        peaks_by_hour=peaks,
        requests_by_day=_by_day(asked),
    )


def _kind_of(result: str, gone: Collection[str]) -> str:
    """Return the class of a result: `good`, `moved`, `missing` or `bad`.

    `gone` are statuses that stand for link rot at this source, beside 404 and 410. A 416 is no error, as only
    probes ask for a part (politeness/outcomes.py).
    """
    if result in {"404", "410", *gone}:
        return "missing"
    return "moved" if result == "416" else {"2": "good", "3": "moved"}.get(result[:1], "bad")


def _by_hour(asked: Sequence[Mapping[str, Any]]) -> tuple[list[Bar], list[Bar]]:
    """Return the requests of the last hours, and the busiest second of each."""
    by_hour = {datetime.fromisoformat(hour["begin"]): hour for hour in asked}
    if not by_hour:
        return [], []
    first, last = min(by_hour), max(by_hour)
    shown = min(max(int((last - first) / timedelta(hours=1)) + 1, 24), _HOURS_SHOWN)
    requests, peaks = [], []
    for at in (last - timedelta(hours=ago) for ago in reversed(range(shown))):
        label, says = f"{at:%d %b %H:%M}", f"{at:%Y-%m-%d %H:%M}"
        if hour := by_hour.get(at):
            many, peak = hour["requests"], hour["peak"]
            requests.append(Bar(label, many, f"{says}: {many} requests, {decimal(hour['bytes'])}"))
            said = f"{says}: {peak['requests']}, allowed {peak['allowed']:g}"
            peaks.append(Bar(label, peak["requests"], said, peak["allowed"]))
        else:
            requests.append(Bar(label, 0, ""))
            peaks.append(Bar(label, 0, ""))
    return requests, peaks


def _by_day(asked: Sequence[Mapping[str, Any]]) -> list[Bar]:
    counts: Counter[str] = Counter()
    for hour in asked:
        counts[hour["begin"][:10]] += hour["requests"]
    if not counts:
        return []
    first, last = (datetime.fromisoformat(day) for day in (min(counts), max(counts)))
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    named = [(day, counts[f"{day:%Y-%m-%d}"]) for day in days]
    return [Bar(f"{day:%d %b}", count, f"{day:%Y-%m-%d}: {count} requests") for day, count in named]
