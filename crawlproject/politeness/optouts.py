"""Opt-outs: what a site forbids doing with its pictures, by the headers of a response or in its robots.txt.

`pages/rules.py` reads those in a page's meta tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from crawlproject.models import OPT_OUTS

_OURS = frozenset({"crawlproject", "*"})  # our product token, and the one for all bots
_WITH_VALUE = ("max-", "unavailable_after")  # rules with a colon, to be told from the names of bots
_WEEKDAY = re.compile(r"\s*(mon|tue|wed|thu|fri|sat|sun)[a-z]*\s*")
_LONGEST_DATE = 64  # characters


def opt_outs(
    headers: Mapping[bytes, Iterable[bytes]] | Mapping[str, Iterable[str]], now: datetime
) -> tuple[str, ...]:
    """Return which of `OPT_OUTS` the headers of a response declare for us, sorted.

    X-Robots-Tag is read as Google documents it ("Robots meta tag, data-nosnippet, and X-Robots-Tag
    specifications"): `botname:` limits the rules after it in the same header to that bot, rules before any name
    are for all bots, and both apply together. `none` means `noindex`, and so does an `unavailable_after` before
    `now`. `noai` and `noimageai` are DeviantArt's (2022). Content-Usage is that of draft-ietf-aipref-attach with
    the labels of draft-ietf-aipref-vocab, -01 to -08; Content-Signal that of contentsignals.org (Cloudflare,
    2025); tdm-reservation that of the TDM Reservation Protocol (W3C community group report, 2024).

    The two dictionaries are read more leniently than RFC 9651 demands: a "no" still counts in a header that is
    malformed elsewhere, or if another member contradicts it. Nothing raises, whatever the headers contain.
    """
    found: set[str] = set()
    for name, values in headers.items():
        header = _text(name)
        for value in values:
            match header:
                case "x-robots-tag":
                    found.update(robots_rules(_text(value), now))
                case "content-usage" | "content-signal":
                    found.update(denied(header, value))
                case "tdm-reservation" if _text(value).strip() == "1":
                    found.add(header)
    return tuple(sorted(found & OPT_OUTS.keys()))


def denied(name: str, value: bytes | str) -> set[str]:
    """Return what a Content-Usage or Content-Signal says no to, as named in `OPT_OUTS`; unknown keys too.

    `name` is which of the two it is, in lower case.
    """
    return {f"{name}:{key}" for key in _denied(_text(value))}


def _text(value: bytes | str) -> str:
    return (value.decode("latin-1") if isinstance(value, bytes) else value).lower()


def robots_rules(value: str, now: datetime) -> Iterator[str]:
    """Yield the rules of an X-Robots-Tag in lower case that apply to us, known or not; so of a robots meta tag.

    `none` yields `noindex` and `nofollow`, an `unavailable_after` before `now` `noindex`.
    """
    ours = True
    parts = iter(value.split(","))
    for part in parts:
        name, colon, rest = part.partition(":")
        if colon and len(name.split()) == 1 and not name.strip().startswith(_WITH_VALUE):
            ours = name.strip().partition("/")[0] in _OURS
            name, _, rest = rest.partition(":")
        name = name.strip()
        if name == "unavailable_after" and _WEEKDAY.fullmatch(rest):
            rest += "," + next(parts, "")  # the comma belongs to the date (RFC 822, RFC 850)
        if ours:
            if name == "none":
                yield "nofollow"
            gone = name == "none" or (name == "unavailable_after" and _is_past(rest, now))
            yield "noindex" if gone else name


def _is_past(date: str, now: datetime) -> bool:
    """Tell whether `date` (in RFC 822, RFC 850 or ISO 8601 format) is past; False if it is not a date."""
    text = date.strip().upper()
    for parse in (datetime.fromisoformat, parsedate_to_datetime) if len(text) <= _LONGEST_DATE else ():
        try:
            then = parse(text)
        except (ValueError, OverflowError):
            continue
        return (then if then.tzinfo is not None else then.replace(tzinfo=UTC)) <= now
    return False


def _denied(value: str) -> Iterator[str]:
    """Yield the keys of a dictionary (`train-ai=n, search=y`) whose value means no; parameters are ignored."""
    for member in value.split(","):
        key, _, answer = member.partition(";")[0].partition("=")
        if answer.strip() in {"n", "no"}:
            yield key.strip()
