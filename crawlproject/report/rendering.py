"""The page of a report: for the admin of the site that it is about, who knows nothing of us."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element

from crawlproject.models import OPT_OUTS
from crawlproject.report.charts import Bar, bars, kind_of, number, shares
from crawlproject.report.markup import Child, make, written

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
_INCIDENTS = {
    "opened": "paused for a while",
    "halted": "stopped",
    "held": "waited as asked",
    "slowed": "slowed down",
    "resumed": "resumed",
}


@cache
def _style() -> str:
    return (resources.files(__package__) / "style.css").read_text()


@cache
def policy() -> str:
    """Return the Content-Security-Policy of the page: it may load nothing and run nothing."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def page(report: Mapping[str, Any]) -> bytes:
    """Return a report, as `site_report` makes it, as a document."""
    source = report["source"][:200]
    title = f"What crawlproject requested of {source}"
    head = make(
        "head",
        make("meta", charset="utf-8"),
        make("meta", http_equiv="Content-Security-Policy", content=policy()),
        make("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make("meta", name="robots", content="noindex"),
        make("link", rel="icon", href="data:,"),
        make("title", title),
        make("style", _style()),
    )
    parts = [
        make("h1", title),
        make(
            "p",
            f"By the crawler's own count, for the last {report['days']} days, by the hour. "
            f"Made {_time(report['made'])}; all times are UTC.",
            class_="muted",
        ),
        _banner(report),
        *_summary(report),
        *_when(report["hours"], report["gone"]),
        *_answers(report["totals"], report["gone"]),
        *_robots(report),
        *_trouble(report),
        *_who(report),
        make(
            "footer",
            "Requests are counted when they have ended, and stand at the moment at which they were sent. A second "
            "is one of the clock, as in your access log. Bytes are those of bodies as they were sent, without "
            "headers and encryption.",
        ),
    ]
    body = make("body", make("main", *parts))
    return written(make("html", head, body, lang="en"))


def _banner(report: Mapping[str, Any]) -> Element | None:
    if excluded := report["excluded"]:
        since = f" since {_time(excluded['time'])}" if excluded["time"] else ""
        return make(
            "p", f"We request nothing of this site: it is excluded from the crawl{since}.", class_="banner"
        )
    said = {
        "halted": "We request nothing of this site at present: the crawl of it was stopped, see below.",
        "open": "We request nothing of this site for the moment: too many requests have failed, see below.",
        "half_open": "We send this site a few requests only, to see whether it answers again.",
    }.get(report["state"])
    return None if said is None else make("p", said, class_="banner")


def _summary(report: Mapping[str, Any]) -> list[Child]:
    totals, limit = report["totals"], report["rate"]["limit"]
    if not totals["requests"]:
        return [make("p", f"Nothing was requested in the last {report['days']} days.")]
    peak, mean = totals["peak"], totals["mean_rps"]
    tiles = [
        ("requests", number(totals["requests"]), f"{_time(totals['first'])} to {_time(totals['last'])}"),
        ("bytes received", size(totals["bytes"]), f"{size(totals['bytes'] / totals['requests'])} a request"),
        (
            "busiest second",
            number(peak["requests"]),
            f"limit in that hour: {peak['allowed']:g} a second; {_time(peak['at'], seconds=True)}",
        ),
        (
            "mean rate while crawling",
            "–" if mean is None else f"{number(mean)}/s",
            f"allowed now: {number(limit)}/s",
        ),
        ("not requested", number(totals["refused_by_robots"]), "because robots.txt forbids it"),
        ("opt-outs honoured", number(totals["opt_outs_honoured"]), "because you do not want it kept"),
    ]
    above = totals["hours_above_allowed"]
    more = totals["maybe_more"]
    return [
        make(
            "dl",
            *(
                make("div", make("dt", name), make("dd", value, make("small", note)))
                for name, value, note in tiles
            ),
            class_="tiles",
        ),
        make(
            "p",
            f"In {above} of {len(report['hours'])} hours a second had more requests than we allow ourselves. "
            "That should not happen: please tell us."
            if above
            else "In each hour the busiest second had no more requests than we allow ourselves at the highest "
            "rate of that hour: 1.1 times the rate, and one.",
        ),
        make(
            "p",
            f"Up to {number(more)} more may have been sent by processes that died before they could count them.",
        )
        if more
        else None,
    ]


def _when(hours: Sequence[Mapping[str, Any]], gone: Collection[int]) -> list[Child]:
    asked = [hour for hour in hours if hour["requests"]]
    if not asked:
        return []
    last = datetime.fromisoformat(asked[-1]["begin"])
    first = max(datetime.fromisoformat(asked[0]["begin"]), last - timedelta(hours=_HOURS_SHOWN - 1))
    by_hour = {hour["begin"]: hour for hour in asked}
    span = int((last - first) / timedelta(hours=1)) + 1
    begin = last - timedelta(hours=max(span, 24) - 1)
    slots = [(begin + timedelta(hours=n)) for n in range(max(span, 24))]
    week = [(slot, by_hour.get(slot.isoformat(timespec="seconds"))) for slot in slots]
    requests = [
        Bar(
            f"{slot:%d %b %H:%M}",
            hour["requests"] if hour else 0,
            f"{slot:%Y-%m-%d %H:%M}: {hour['requests']} requests, {size(hour['bytes'])}" if hour else "",
        )
        for slot, hour in week
    ]
    peaks = [
        Bar(
            f"{slot:%d %b %H:%M}",
            hour["peak"]["requests"] if hour else 0,
            f"{slot:%Y-%m-%d %H:%M}: {hour['peak']['requests']}, allowed {hour['peak']['allowed']:g}"
            if hour
            else "",
            hour["peak"]["allowed"] if hour else None,
        )
        for slot, hour in week
    ]
    days = _by_day(asked)
    return [
        make("h2", "When, and how fast"),
        make(
            "div",
            make("div", make("h3", "Requests by the hour"), bars(requests, "Requests by the hour")),
            make(
                "div",
                make("h3", "Busiest second of each hour, and what is allowed (line)"),
                bars(peaks, "Requests in the busiest second of each hour"),
            ),
            make("div", make("h3", "Requests by the day"), bars(days, "Requests by the day"))
            if len(days) > 1
            else None,
            class_="charts",
        ),
        make("h3", f"The last {len(asked[-_ROWS:])} hours with requests"),
        _table(
            ("hour", "requests", "received", "mean", "busiest second", "allowed", "rate", "not 2xx"),
            (
                (
                    _time(hour["begin"]),
                    number(hour["requests"]),
                    size(hour["bytes"]),
                    "–" if hour["mean_rps"] is None else f"{number(hour['mean_rps'])}/s",
                    number(hour["peak"]["requests"]),
                    f"{hour['peak']['allowed']:g}",
                    f"{hour['peak']['rate']:g}/s",
                    number(sum(n for name, n in hour["results"].items() if kind_of(name, gone) != "good")),
                )
                for hour in reversed(asked[-_ROWS:])
            ),
        ),
        make("p", "Older hours: in the JSON of this report.", class_="muted") if len(asked) > _ROWS else None,
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


def _answers(totals: Mapping[str, Any], gone: Collection[int]) -> list[Child]:
    results, unsent = totals["results"], totals["not_sent"]
    if not results and not unsent:
        return []
    whole = max(sum(results.values()), 1)
    parts: list[Child] = [make("h2", "What came back")]
    if results:
        rows = (
            (name, number(count), f"{100 * count / whole:.3g} %", _meaning(name, gone))
            for name, count in results.items()
        )
        parts += [
            shares(results, "What the requests ended in", gone),
            _table(("status", "requests", "share", "meaning"), rows, kind="said"),
            make(
                "p", f"{number(totals['for_robots_txt'])} of the requests were for a robots.txt.", class_="muted"
            ),
        ]
    if unsent:
        rows2 = ((_RESULTS.get(name, name), number(count)) for name, count in unsent.items())
        parts += [make("h3", "Before a request could be sent"), _table(("what", "how often"), rows2)]
    return parts


def _meaning(result: str, gone: Collection[int]) -> str:
    return _RESULTS.get(result) or _KINDS[kind_of(result, gone)]


def _robots(report: Mapping[str, Any]) -> list[Child]:
    files = report["robots"]
    parts: list[Child] = [
        make("h2", "robots.txt"),
        make(
            "p",
            "Before anything else we fetch the robots.txt of each host, again after a day at the latest (sooner "
            "if its Cache-Control says so), and obey the group of ",
            make("code", report["who"]["robots_token"]),
            ", or else that of ",
            make("code", "*"),
            ".",
        ),
    ]
    if not files:
        parts.append(make("p", "None is on record for this site at present."))
    for one in files[:_ROBOTS_SHOWN]:
        fetched = "" if one["fetched"] is None else f"fetched {_time(one['fetched'])}, answer {one['status']}: "
        parts += [make("h3", _cut(one["url"], 200)), make("p", fetched + _cut(one["obeyed"], 400))]
        if one["read_from"]:
            parts.append(make("p", f"It leads to {_cut(one['read_from'], 300)}", class_="muted"))
        if one["text"]:
            shown = "\n".join(one["text"][:_TEXT_SHOWN].splitlines()[:_LINES_SHOWN])
            parts.append(make("pre", shown))
            hidden = one["characters"] - len(shown) - 1  # the last line's end
            if hidden > 0:
                parts.append(make("p", f"{number(hidden)} more characters are not shown.", class_="muted"))
    if len(files) > _ROBOTS_SHOWN:
        parts.append(
            make("p", f"{len(files) - _ROBOTS_SHOWN} more are in the JSON of this report.", class_="muted")
        )
    return parts


def _trouble(report: Mapping[str, Any]) -> list[Child]:
    totals, incidents = report["totals"], report["incidents"]
    parts: list[Child] = [
        make("h2", "Pauses and back-offs"),
        make(
            "p",
            f"Slowed down {number(totals['slowed'])} times (429, 503, slow answers), waited for a Retry-After "
            f"{number(totals['held'])} times, paused because of errors {number(totals['opened'])} times, stopped "
            f"{number(totals['halted'])} times.",
        ),
    ]
    if incidents:
        rows = (
            (_time(one["time"], seconds=True), _INCIDENTS.get(one["what"], one["what"]), _cut(one["why"], 200))
            for one in incidents
        )
        parts.append(_table(("the last ones", "what", "why"), rows, kind="told"))
    return parts


def _who(report: Mapping[str, Any]) -> list[Child]:
    who = report["who"]
    headers = sorted({OPT_OUTS[name] for name in who["opt_outs"] if name in OPT_OUTS})

    def contact() -> Child:
        return make("a", who["contact"], href=who["contact"])

    stop: list[Element] = [
        make("li", "In robots.txt; it takes effect when we fetch that again:"),
        make("li", "A slower crawl: ", make("code", "Crawl-delay: 10"), " in that group."),
        make(
            "li",
            "At once: answer 429 or 503 with ",
            make("code", "Retry-After"),
            f". We send nothing new for that long, at most {_duration(report['rate']['retry_after_max'])} at a "
            "time. Without it we only halve our rate.",
        ),
    ]
    stop[0].append(make("pre", f"User-agent: {who['robots_token']}\nDisallow: /"))
    if headers:
        names = ", ".join(who["opt_outs"])
        stop.append(make("li", f"Single images: by the headers {', '.join(headers)} ({names})."))
    if who["contact"]:
        stop.append(
            make(
                "li",
                "Write to us (",
                contact(),
                "). As soon as we have read it, we can exclude your site for good, within seconds.",
            )
        )
    return [
        make("h2", "Who we are"),
        make("p", "We send this User-Agent: ", make("code", who["user_agent"])),
        make("p", "Contact: ", contact() if who["contact"] else "not set (CRAWL_CONTACT)"),
        make("h2", "How to have us stop"),
        make("ul", *stop),
    ]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "figures") -> Element:
    """Return a table of "figures", of figures but for its last column ("said"), or of texts ("told")."""
    head = make("thead", make("tr", *(make("th", name, scope="col") for name in names)))
    body = make("tbody", *(make("tr", *(make("td", cell) for cell in row)) for row in rows))
    return make("div", make("table", head, body, class_=kind), class_="table", tabindex=0)


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
