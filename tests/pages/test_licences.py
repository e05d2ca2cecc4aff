"""Which licence a URL names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.pages.licences import Licence, known_licence, licence_of

CC = "https://creativecommons.org"


@pytest.mark.parametrize(
    ("url", "path", "name"),
    [
        ("https://creativecommons.org/licenses/by-sa/4.0/deed.de", "licenses/by-sa/4.0", "CC BY-SA 4.0"),
        ("//www.creativecommons.org/licenses/BY-NC/2.5/deed.zh-hans", "licenses/by-nc/2.5", "CC BY-NC 2.5"),
        ("https://creativecommons.org/licenses/by/3.0/us/legalcode", "licenses/by/3.0/us", "CC BY 3.0 US"),
        ("http://creativecommons.org/licenses/by-nd-nc/1.0/", "licenses/by-nc-nd/1.0", "CC BY-NC-ND 1.0"),
        ("http://creativecommons.org/licenses/by/2.5/scotland/", "licenses/by/2.5/scotland", "CC BY 2.5 SCOTLAND"),
        ("http://creativecommons.org/publicdomain/zero/1.0/deed.fr", "publicdomain/zero/1.0", "CC0 1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "publicdomain/mark/1.0", "PDM 1.0"),
        ("http://creativecommons.org/licenses/publicdomain/", "licenses/publicdomain", "Public domain"),
    ],
)
def test_creative_commons_in_any_spelling(url: str, path: str, name: str) -> None:
    licence = licence_of(url, "http://museum.example/")
    assert licence == Licence(f"{CC}/{path}/", name)
    assert licence.is_open
    assert licence_of(licence.url) == licence


def test_rights_statements_are_known_and_not_open() -> None:
    licence = licence_of("http://rightsstatements.org/page/InC/1.0/?language=en")
    assert licence == Licence("http://rightsstatements.org/vocab/InC/1.0/", "RS InC 1.0")
    assert not licence.is_open


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://www.gnu.org/licenses/fdl-1.3.html",
            f"{CC}/licenses/",
            f"{CC}/licenses/by/",
            f"{CC}/licenses/all/1.0/",
        ),
        *(
            "https://creativecommons.org.evil.example/licenses/by/4.0/",
            "https://evil.example/creativecommons.org/licenses/by/4.0/",
        ),
        *(f"{CC}/licenses/by/4.0/evil/more", f"{CC}/publicdomain/by/4.0/"),
    ],
)
def test_what_is_only_marked_as_a_licence_has_no_name_and_is_not_open(url: str) -> None:
    licence = licence_of(url)
    assert licence == Licence(url, "")
    assert not licence.is_open
    assert known_licence(url) is None


@pytest.mark.parametrize("url", ["javascript:x", "CC BY", "", "mailto:a@b.example"])
def test_what_is_no_address_is_no_licence(url: str) -> None:
    assert licence_of(url) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    licence_of(text, "http://museum.example/")
    known_licence(f"https://creativecommons.org/licenses/{text}")
