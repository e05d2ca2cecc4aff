"""Registrable domains."""

from __future__ import annotations

import pytest

from crawlproject.sources.domains import domain_of, domain_of_url


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("museum.org", "museum.org"),
        ("www.museum.org", "museum.org"),
        ("a.b.c.museum.org", "museum.org"),
        ("Images.MUSEUM.org.", "museum.org"),
        ("img.museum.co.uk", "museum.co.uk"),
        ("museum.co.uk", "museum.co.uk"),
        ("co.uk", "co.uk"),
        ("upload.wikimedia.org", "wikimedia.org"),
        ("www.bücher.de", "xn--bcher-kva.de"),
        ("www.xn--bcher-kva.de", "xn--bcher-kva.de"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("2001:db8::7", "2001:db8::7"),
        ("localhost", "localhost"),
        ("localhost.", "localhost"),
        ("gallery", "gallery"),
        ("a..b", "a..b"),
        ("ü..b", "ü..b"),
        ("", ""),
        (".", ""),
    ],
)
def test_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://user:secret@www.museum.org:8443/a?b#c", "museum.org"),
        ("http://[::1]:8080/", "::1"),
        ("http://127.0.0.1:8000/x", "127.0.0.1"),
        ("no url", ""),
        ("mailto:a@b.org", ""),
    ],
)
def test_domain_of_a_url(url: str, domain: str) -> None:
    assert domain_of_url(url) == domain
