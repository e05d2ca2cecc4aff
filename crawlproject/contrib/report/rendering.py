"""The page of a report: for the admin of the site that it is about, who knows nothing of us."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from crawlproject.contrib.report.charts import Bar, bars, kind_of, number, shares
from crawlproject.contrib.report.markup import Markup, markup
from crawlproject.contrib.report.site_report import UnknownSource, site_report
from crawlproject.models import OPT_OUTS
from crawlproject.state.client import State

_HOURS_SHOWN = 168  # in the charts: a week
_ROWS = 48  # hours in the table
_ROBOTS_SHOWN = 10
_TEXT_SHOWN = 6_000  # characters of a robots.txt
_LINES_SHOWN = 60

_RESULTS = {
    "timeout": "no answer in time",
    "network": "the connection broke",
    "refused": "the connection was refused",
    "dns": "the name could not be resolved",
    "tls": "no secure connection could be made",
    "too_large": "broken off by us: larger than we read",
    "none": "broken off by us: the crawl was stopped, or too many large bodies came at once",
    "304": "not changed since we had it last",
    "416": "a part of an image could not be had: we ask for the whole",
}
_KINDS = {
    "good": "fine",
    "moved": "redirects and the like",
    "missing": "not there: noted; an image is not tried again unless our operator asks for it",
    "bad": "an error: when too many images or pages end so, we pause",
}
_STATES = {
    "halted": "We request nothing of this site at present: the crawl of it was stopped, see below.",
    "open": "We request nothing of this site for the moment: too many requests have failed, see below.",
    "half_open": "We send this site a few requests only, to see whether it answers again.",
}
_INCIDENTS = {
    "opened": "paused for a while",
    "halted": "stopped",
    "held": "waited as asked",
    "slowed": "slowed down",
    "resumed": "resumed",
}


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@cache
def policy() -> str:
    """Return the Content-Security-Policy of the page: it may load nothing and run nothing."""
    digest = base64.b64encode(hashlib.sha256(_file("style.css").encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


async def page_of(state: State, source: str) -> tuple[bytes, str]:
    """Return the page about a source, and its Content-Security-Policy.

    Raises:
        LookupError: there is nothing to report on.

    """
    try:
        report = await site_report(state, source)
    except UnknownSource as error:
        raise LookupError(str(error)) from None
    return await asyncio.to_thread(page, report), policy()


def page(report: Mapping[str, Any]) -> bytes:
    """Return a report, as `site_report` makes it, as a document."""
    who, totals = report["who"], report["totals"]
    contact = markup('<a href="{0}">{0}</a>', who["contact"]) if who["contact"] else None
    headers = sorted({OPT_OUTS[name] for name in who["opt_outs"] if name in OPT_OUTS})
    by_header = "<li>Single images: by the headers {} ({}).</li>"
    by_mail = (
        "<li>Write to us ({}). As soon as we have read it, we can exclude your site for good, within seconds.</li>"
    )
    return markup(
        _file("page.html"),
        policy=policy(),
        style=Markup(_file("style.css")),
        source=report["source"][:200],
        days=report["days"],
        made=_time(report["made"]),
        banner=_banner(report),
        summary=_summary(report),
        when=_when(report["hours"], report["gone"]),
        answers=_answers(totals, report["gone"]),
        robots=_robots(report["robots"]),
        incidents=_incidents(report["incidents"]),
        retry_after_max=_duration(report["rate"]["retry_after_max"]),
        user_agent=who["user_agent"],
        robots_token=who["robots_token"],
        contact=contact or "not set (CRAWL_CONTACT)",
        by_header=markup(by_header, ", ".join(headers), ", ".join(who["opt_outs"])) if headers else None,
        by_mail=contact and markup(by_mail, contact),
        **{name: number(totals[name]) for name in ("slowed", "held", "opened", "halted")},
    ).encode()


def _banner(report: Mapping[str, Any]) -> list[Markup]:
    if excluded := report["excluded"]:
        since = f" since {_time(excluded['time'])}" if excluded["time"] else ""
        said = f"We request nothing of this site: it is excluded from the crawl{since}."
    else:
        said = _STATES.get(report["state"], "")
    return [markup('<p class="banner">{}</p>', said)] if said else []


def _summary(report: Mapping[str, Any]) -> list[Markup]:
    totals, limit = report["totals"], report["rate"]["limit"]
    if not totals["requests"]:
        return [markup("<p>Nothing was requested in the last {} days.</p>", report["days"])]
    peak, mean = totals["peak"], totals["mean_rps"]
    tiles = (
        ("requests", number(totals["requests"]), f"{_time(totals['first'])} to {_time(totals['last'])}"),
        ("bytes received", size(totals["bytes"]), f"{size(totals['bytes'] / totals['requests'])} a request"),
        (
            "busiest second",
            number(peak["requests"]),
            f"limit in that hour: {peak['allowed']:g} a second; {_time(peak['at'], seconds=True)}",
        ),
        ("mean rate while crawling", _per_second(mean), f"allowed now: {number(limit)}/s"),
        ("not requested", number(totals["refused_by_robots"]), "because robots.txt forbids it"),
        ("opt-outs honoured", number(totals["opt_outs_honoured"]), "because you do not want it kept"),
    )
    tile = "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>"
    if above := totals["hours_above_allowed"]:
        said = (
            f"In {above} of {len(report['hours'])} hours a second had more requests than we allow ourselves. "
            "That should not happen: please tell us."
        )
    else:
        said = (
            "In each hour the busiest second had no more requests than we allow ourselves at the highest rate of "
            "that hour: 1.1 times the rate, and one."
        )
    parts = [markup('<dl class="tiles">{}</dl>', [markup(tile, *one) for one in tiles]), markup("<p>{}</p>", said)]
    if more := totals["maybe_more"]:
        said = "<p>Up to {} more may have been sent by processes that died before they could count them.</p>"
        parts.append(markup(said, number(more)))
    return parts


def _when(hours: Sequence[Mapping[str, Any]], gone: Collection[int]) -> list[Markup]:
    asked = [hour for hour in hours if hour["requests"]]
    if not asked:
        return []
    last = datetime.fromisoformat(asked[-1]["begin"])
    span = int((last - datetime.fromisoformat(asked[0]["begin"])) / timedelta(hours=1)) + 1
    by_hour = {datetime.fromisoformat(hour["begin"]): hour for hour in asked}
    requests, peaks = [], []
    for ago in reversed(range(min(max(span, 24), _HOURS_SHOWN))):
        at = last - timedelta(hours=ago)
        label, says = f"{at:%d %b %H:%M}", f"{at:%Y-%m-%d %H:%M}"
        if hour := by_hour.get(at):
            many, peak = hour["requests"], hour["peak"]
            requests.append(Bar(label, many, f"{says}: {many} requests, {size(hour['bytes'])}"))
            says += f": {peak['requests']}, allowed {peak['allowed']:g}"
            peaks.append(Bar(label, peak["requests"], says, peak["allowed"]))
        else:
            requests.append(Bar(label, 0, ""))
            peaks.append(Bar(label, 0, ""))
    charts = [
        ("Requests by the hour", bars(requests, "Requests by the hour")),
        (
            "Busiest second of each hour, and what is allowed (line)",
            bars(peaks, "Requests in the busiest second of each hour"),
        ),
    ]
    if len(days := _by_day(asked)) > 1:
        charts.append(("Requests by the day", bars(days, "Requests by the day")))
    rows = [
        (
            _time(hour["begin"]),
            number(hour["requests"]),
            size(hour["bytes"]),
            _per_second(hour["mean_rps"]),
            number(hour["peak"]["requests"]),
            f"{hour['peak']['allowed']:g}",
            f"{hour['peak']['rate']:g}/s",
            number(sum(n for name, n in hour["results"].items() if kind_of(name, gone) != "good")),
        )
        for hour in reversed(asked[-_ROWS:])
    ]
    heads = ("hour", "requests", "received", "mean", "busiest second", "allowed", "rate", "not 2xx")
    older = '<p class="muted">Older hours: in the JSON of this report.</p>'
    return [
        markup("<h2>When, and how fast</h2>"),
        markup('<div class="charts">{}</div>', [markup("<div><h3>{}</h3>{}</div>", *one) for one in charts]),
        markup("<h3>The last {} hours with requests</h3>", len(rows)),
        _table(heads, rows),
        *([markup(older)] if len(asked) > _ROWS else []),
    ]


def _by_day(asked: Sequence[Mapping[str, Any]]) -> list[Bar]:
    counts: dict[str, int] = {}
    for hour in asked:
        day = hour["begin"][:10]
        counts[day] = counts.get(day, 0) + hour["requests"]
    first, last = (datetime.fromisoformat(day) for day in (min(counts), max(counts)))
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    named = [(day, counts.get(f"{day:%Y-%m-%d}", 0)) for day in days]
    return [Bar(f"{day:%d %b}", count, f"{day:%Y-%m-%d}: {count} requests") for day, count in named]


def _answers(totals: Mapping[str, Any], gone: Collection[int]) -> list[Markup]:
    results, unsent, parts = totals["results"], totals["not_sent"], []
    if results or unsent:
        parts.append(markup("<h2>What came back</h2>"))
    if results:
        whole = sum(results.values())
        rows = (
            (
                name,
                number(count),
                f"{100 * count / whole:.3g} %",
                _RESULTS.get(name) or _KINDS[kind_of(name, gone)],
            )
            for name, count in results.items()
        )
        robots = '<p class="muted">{} of the requests were for a robots.txt.</p>'
        parts += [
            shares(results, "What the requests ended in", gone),
            _table(("status", "requests", "share", "meaning"), rows, kind="said"),
            markup(robots, number(totals["for_robots_txt"])),
        ]
    if unsent:
        counts = ((_RESULTS.get(name, name), number(count)) for name, count in unsent.items())
        parts += [markup("<h3>Before a request could be sent</h3>"), _table(("what", "how often"), counts)]
    return parts


def _robots(files: Sequence[Mapping[str, Any]]) -> list[Markup]:
    parts = [] if files else [markup("<p>None is on record for this site at present.</p>")]
    for one in files[:_ROBOTS_SHOWN]:
        fetched = "" if one["fetched"] is None else f"fetched {_time(one['fetched'])}, answer {one['status']}: "
        parts.append(markup("<h3>{}</h3><p>{}{}</p>", _cut(one["url"], 200), fetched, _cut(one["obeyed"], 400)))
        if one["read_from"]:
            parts.append(markup('<p class="muted">It leads to {}</p>', _cut(one["read_from"], 300)))
        if one["text"]:
            shown = "\n".join(one["text"][:_TEXT_SHOWN].splitlines()[:_LINES_SHOWN])
            parts.append(markup("<pre>{}</pre>", shown))
            hidden = one["characters"] - len(shown) - 1  # the last line's end
            if hidden > 0:
                parts.append(markup('<p class="muted">{} more characters are not shown.</p>', number(hidden)))
    if (more := len(files) - _ROBOTS_SHOWN) > 0:
        parts.append(markup('<p class="muted">{} more are in the JSON of this report.</p>', more))
    return parts


def _incidents(incidents: Sequence[Mapping[str, Any]]) -> Markup | None:
    rows = (
        (_time(one["time"], seconds=True), _INCIDENTS.get(one["what"], one["what"]), _cut(one["why"], 200))
        for one in incidents
    )
    return _table(("the last ones", "what", "why"), rows, kind="told") if incidents else None


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "figures") -> Markup:
    """Return a table of "figures", of figures but for its last column ("said"), or of texts ("told")."""
    head = [markup('<th scope="col">{}</th>', name) for name in names]
    body = [markup("<tr>{}</tr>\n", [markup("<td>{}</td>", cell) for cell in row]) for row in rows]
    table = '<table class="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
    return markup('<div class="table" tabindex="0">{}</div>', markup(table, kind, head, body))


def _per_second(rate: float | None) -> str:
    return "–" if rate is None else f"{number(rate)}/s"


def _time(iso: str, *, seconds: bool = False) -> str:
    return iso[: 19 if seconds else 16].replace("T", " ")


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def size(value: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
