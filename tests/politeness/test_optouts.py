"""What headers forbid: as their authors document them, and malformed."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from crawlproject.models import OPT_OUTS
from crawlproject.politeness.robots_txt import opt_outs

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = ("", ":", ",", "=", ";", ":::,,,===;;;", "\x00", "\x1f\r\n", "\xff\xfe", "²", '"', "(", "\\", "n", "=n")


def robots(*values: str) -> tuple[str, ...]:
    return opt_outs({"X-Robots-Tag": list(values)}, NOW)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("noindex, noai,noimageai , noindex", ["noai", "noimageai", "noindex"]),
        ("  NoAI\t,\tNOINDEX  ", ["noai", "noindex"]),
        ("none", ["noindex"]),
        # what says nothing about a picture
        ("nofollow, noarchive, nosnippet, notranslate, nopagereadaloud, indexifembedded", []),
        ("noaindex, no-ai, no ai, noai!, xnoai", []),
        # ours by name
        ("crawlproject: noai", ["noai"]),
        ("crawlproject/1.0: noai", ["noai"]),
        ("*: noai", ["noai"]),
        # others' by name
        ("googlebot: noindex, nofollow, noai", []),
        ("crawlproject-news: noindex", []),
        # until the next name
        ("crawlproject: noai, googlebot: noindex", ["noai"]),
        ("noai, googlebot: noindex, crawlproject: noimageai, bingbot: none", ["noai", "noimageai"]),
        # directives with a colon are no bots
        ("max-image-preview:large, noai", ["noai"]),
        ("crawlproject: max-image-preview: none, noai", ["noai"]),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noai", ["noai"]),
        ("googlebot: unavailable_after: 25 Jun 2010 15:00:00 PST, noai", []),
        ("crawlproject: unavailable_after: 25 Jun 2010 15:00:00 PST", ["noindex"]),
    ],
)
def test_x_robots_tag(value: str, expected: list[str]) -> None:
    assert robots(value) == tuple(expected)


@pytest.mark.parametrize(
    ("date", "past"),
    [
        ("25 Jun 2010 15:00:00 PST", True),
        ("Fri, 25 Jun 2010 15:00:00 GMT", True),
        ("2010-06-25T15:00:00Z", True),
        ("Fri, 02 Jan 2026 03:04:05 GMT", True),
        ("2026-01-02T04:04:05+01:00", True),
        # still to come
        ("Fri, 02 Jan 2026 03:04:06 GMT", False),
        ("9999-12-31T23:59:59-23:59", False),
        # no dates: Google ignores them
        ("soon", False),
        ("25 Jun 2010 99999999999999999999:1:1 GMT", False),
        ("1" * 10_000, False),
    ],
)
def test_what_is_no_longer_available_is_not_to_be_indexed(date: str, past: bool) -> None:
    expected = ("noindex",) if past else ()
    assert robots(f"unavailable_after: {date}") == expected
    assert robots(f"UNAVAILABLE_AFTER:{date}, nofollow") == expected
    assert robots(f"unavailable_after: {date}", "noai") == ("noai", *expected)


def test_headers_add_up_and_a_bots_name_applies_to_its_own_header_only() -> None:
    assert robots("googlebot: noindex", "noai") == ("noai",)
    assert robots("crawlproject: noimageai", "noai", "noindex, bingbot: noimageindex") == (
        "noai",
        "noimageai",
        "noindex",
    )


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("Content-Usage", "train-ai=n, search=n", ["content-usage:search", "content-usage:train-ai"]),
        ("Content-Usage", "train-ai=n;exceptions=y;x", ["content-usage:train-ai"]),
        ("Content-Usage", " Train-AI = N ", ["content-usage:train-ai"]),
        ("Content-Usage", "train-ai=no", ["content-usage:train-ai"]),
        ("Content-Usage", "train-ai=n, (((", ["content-usage:train-ai"]),
        ("Content-Usage", "train-ai=n, train-ai=y", ["content-usage:train-ai"]),
        ("Content-Usage", "train-ai, search=?1, ai=maybe, bots=1", []),
        ("Content-Usage", "ai-train=n", []),  # the other header's key
        (
            "Content-Signal",
            "search=yes, ai-input=no, ai-train=no",
            ["content-signal:ai-input", "content-signal:ai-train"],
        ),
        ("Content-Signal", "SEARCH=NO,ai-train=NO", ["content-signal:ai-train", "content-signal:search"]),
        ("TDM-Reservation", "1", ["tdm-reservation"]),
        ("TDM-Reservation", "0", []),
        ("TDM-Policy", "1", []),
    ],
)
def test_other_headers(header: str, value: str, expected: list[str]) -> None:
    for name in (header, header.lower(), header.upper()):
        assert opt_outs({name: [value]}, NOW) == tuple(expected)
        assert opt_outs({name: ["", value, "x"]}, NOW) == tuple(expected)


@pytest.mark.parametrize("name", sorted({*OPT_OUTS.values()}))
def test_nonsense_never_raises_and_declares_nothing_unknown(name: str) -> None:
    chance = random.Random(name)
    words = [
        *HOSTILE,
        *OPT_OUTS,
        *["crawlproject:", "googlebot:", "unavailable_after:", "Fri", "25-Jun-10", "noai,", "12:00:00"],
    ]
    for _ in range(3000):
        value = "".join(chance.choices(words, k=chance.randrange(12)))
        assert set(opt_outs({name: [value]}, NOW)) <= OPT_OUTS.keys()
    for _ in range(300):
        raw = chance.randbytes(chance.randrange(200))
        headers: Any = {name.encode(): [raw, b"unavailable_after:" + raw]}
        assert set(opt_outs(headers, NOW)) <= OPT_OUTS.keys()
