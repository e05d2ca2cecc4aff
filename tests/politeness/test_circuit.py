from __future__ import annotations

import pytest

from crawlproject.models import Failure
from crawlproject.politeness.circuit import sample_of


@pytest.mark.parametrize(
    ("kind", "status", "sample"),
    [
        ("http", 403, False),
        ("http", 429, False),
        ("http", 500, False),
        ("http", 503, False),
        ("http", 204, True),
        ("http", 304, True),
        ("http", 404, True),
        ("timeout", None, False),
        ("dns", None, False),
        ("refused", None, False),
        ("network", None, False),
        ("unreadable", 200, True),
        ("too_large", None, True),
        ("robots", None, None),
        ("opt_out", 200, None),
        ("refused_by_us", None, None),
        ("error", None, None),
    ],
)
def test_only_what_came_of_asking_speaks_against_a_source(
    kind: str, status: int | None, sample: bool | None
) -> None:
    assert sample_of(Failure("a", "http://a.test/", "a", kind=kind, reason="x", status=status)) is sample
