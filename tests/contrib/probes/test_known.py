"""What is known of a picture that is probed, and what an answer says."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject.contrib.probes.known import Known, Part, is_not_in_parts, outcome_of
from crawlproject.politeness.outcomes import Becomes, Sample
from crawlproject.politeness.versions import Version

URL = "https://museum.org/a.jpg"
DATE = "Sun, 22 Nov 2026 10:30:00 GMT"


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (b"bytes 0-32767/146515", (0, 146_515)),
        (b" Bytes 0-0/1 ", (0, 1)),
        (b"bytes 0-99/*", (0, None)),
        (b"bytes 100-199/200", (100, 200)),
        (None, None),
        (b"", None),
        (b"bytes */200", None),
        (b"bytes 0-200/200", None),
        (b"bytes 5-4/200", None),
        (b"bytes 0-9", None),
        (b"bytes=0-9/10", None),
        (b"bytes 0-" + b"9" * 19 + b"/*", None),
        ("bytes 0-٣/10".encode(), None),
        (b"bytes 0-9/10, bytes 20-29/40", None),
        (b"pages 0-9/10", None),
    ],
)
def test_content_range(header: bytes | None, part: tuple[int, int | None] | None) -> None:
    assert Part.of(header) == part


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (True, Known()),
        ({}, Known()),
        ({"etag": '"a"', "filesize": 0}, Known(etag='"a"', filesize=0)),
        ({"etag": None, "final_url": URL, "last_modified": DATE}, Known(last_modified=DATE, final_url=URL)),
        ({"whole": True}, Known(whole=True)),
    ],
)
def test_what_a_seed_may_say_is_known(said: Any, known: Known) -> None:
    assert Known.of(said) == known
    assert Known.of(known.stored) == known


@pytest.mark.parametrize(
    "said",
    [
        *("yes", 1, False, None, [], {"etags": '"a"'}, {"etag": "a"}, {"etag": '"a"\r\nX-Evil: 1'}, {"etag": 1}),
        *({"last_modified": "yesterday"}, {"filesize": -2}, {"filesize": 2**63}, {"filesize": "9"}),
        *({"filesize": True}, {"final_url": "x" * 10_000}, {"whole": 1}, {"final_url": b"x"}),
    ],
)
def test_anything_else_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="probe"):
        Known.of(said)


@pytest.mark.parametrize(
    ("known", "version", "filesize", "found"),
    [
        (Known(), Version('"a"', DATE), 10, None),
        (Known('"a"'), Version(), None, None),
        (Known('"a"'), Version('"a"'), None, "unchanged"),
        (Known('W/"a"'), Version('"a"'), None, "unchanged"),
        (Known('"a"', DATE), Version('"b"', DATE), None, "changed"),
        (Known('"a"', DATE), Version("", DATE), None, "unchanged"),
        (Known("", DATE), Version("", DATE.replace("2026", "2027")), None, "changed"),
        (Known(filesize=10), Version('"a"'), 10, "unchanged"),
        (Known(filesize=10), Version(), 11, "changed"),
        (Known('"a"', filesize=10), Version('"a"'), 11, "changed"),
        (Known('"a"', filesize=10), Version('"b"'), 10, "changed"),
    ],
)
def test_what_has_changed(known: Known, version: Version, filesize: int | None, found: str | None) -> None:
    assert known.found(version, filesize) == found


PARTS = {"Content-Range": "bytes 0-9/20"}


@pytest.mark.parametrize(
    ("status", "headers", "whole", "becomes"),
    [
        (200, {}, False, Becomes.IMAGE),
        (206, PARTS, False, Becomes.IMAGE),
        (206, PARTS, True, Becomes.DEAD_LETTER),
        (206, {}, False, None),
        (206, {"Content-Range": "bytes 5-9/20"}, False, None),
        (416, {}, False, None),
        (416, {}, True, Becomes.DEAD_LETTER),
        (304, {}, False, Becomes.DEAD_LETTER),
        (404, {}, False, Becomes.LINK_ROT),
        (403, {}, False, Becomes.LINK_ROT),
        (401, {}, False, Becomes.DEAD_LETTER),
        (503, {"Retry-After": "1"}, False, Becomes.FREE_RETRY),
        (500, {}, True, Becomes.RETRY),
    ],
)
def test_outcomes(status: int, headers: dict[str, str], whole: bool, becomes: Becomes | None) -> None:
    response, known = Response(URL, status, headers), Known(whole=whole)
    outcome = outcome_of(response, Request(URL), known, gone={403})
    assert is_not_in_parts(response, known) == (becomes is None)  # and is asked for as a whole
    if becomes is None:
        return
    assert outcome.becomes is becomes
    assert (outcome.sample is Sample.ERROR) == (status in {401, 500, 503} or (status == 416 and whole))


def test_a_304_answers_a_condition() -> None:
    asked = Request(URL, headers={"If-None-Match": '"a"'})
    assert outcome_of(Response(URL, 304), asked, Known('"a"')).becomes is Becomes.IMAGE
