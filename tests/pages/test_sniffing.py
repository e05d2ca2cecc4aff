"""Whether a body is HTML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.page import is_html

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/html", b"<p>x", True),
        ("application/xhtml+xml", b"<?xml version='1.0'?><html/>", True),
        ("text/html", PNG, False),
        ("text/html", b"\xff\xd8\xff\xe0", False),
        ("text/html", b"\xff\xfe<\0h\0t\0m\0l\0>\0", True),
        (None, b"\n <!DOCTYPE html><p>", True),
        (None, b"<!-- x --><p>", True),
        (None, b"<bold>", False),
        (None, b"<svg xmlns=...>", False),
        (None, b"plain", False),
        ("*/*", b"<title>x", True),
        ("text/plain", b"<html>", False),
        ("application/xml", b"<html>", False),
        ("image/png", b"<html>", False),
    ],
)
def test_html_is_told_by_type_and_bytes(content_type: str | None, body: bytes, expected: bool) -> None:
    assert is_html(content_type, body) is expected


def test_nosniff_forbids_to_look() -> None:
    assert not is_html(None, b"<html>", nosniff=True)
    assert is_html("text/html", b"<html>", nosniff=True)


@given(st.none() | st.text(), st.binary())
def test_no_bytes_raise(content_type: str | None, body: bytes) -> None:
    is_html(content_type, body)
