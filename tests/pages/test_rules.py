"""What headers and meta tags forbid."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.rules import Rules, rules_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "metas", "rules"),
    [
        ([], [], Rules(False, ())),
        (["none"], [], Rules(True, ("noindex",))),
        ([], [("robots", "NOINDEX,NOFOLLOW")], Rules(True, ("noindex",))),
        ([], [("googlebot", "none")], Rules(False, ())),
        (["noai"], [("robots", "noimageindex")], Rules(False, ("noai", "noimageindex"))),
        (["otherbot: none", "crawlproject: nofollow"], [], Rules(True, ())),
        ([], [("robots", "unavailable_after: 2020-01-01")], Rules(False, ("noindex",))),
        ([], [("tdm-reservation", " 1 ")], Rules(False, ("tdm-reservation",))),
        ([], [("tdm-reservation", "0"), ("description", "noindex")], Rules(False, ())),
    ],
)
def test_headers_and_meta_tags_apply_together(
    headers: list[str], metas: list[tuple[str, str]], rules: Rules
) -> None:
    assert rules_of({"X-Robots-Tag": headers}, metas, NOW) == rules
    assert rules_of({b"x-robots-tag": [one.encode() for one in headers]}, metas, NOW) == rules


@given(st.dictionaries(st.binary(), st.lists(st.binary())), st.lists(st.tuples(st.text(), st.text())))
def test_nothing_raises(headers: dict[bytes, list[bytes]], metas: list[tuple[str, str]]) -> None:
    rules_of(headers, [*metas, *(("robots", content) for _, content in metas)], NOW)
