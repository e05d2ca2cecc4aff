"""Keys of the index: those of the tools that look URLs up in it."""

from __future__ import annotations

import pytest
from cdxj_indexer.main import CDXJIndexer
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.contrib.warc.url_keys import url_key
from tests.test_linear import MOST_S, fault

_theirs = CDXJIndexer(output=None, inputs=[]).get_url_key
_ID = "0123456789abcdefABCDEF0123456789"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.Museum.example", "example,museum)/"),
        ("https://museum.example:443/A/./b/../c//d/", "example,museum)/a/c/d"),
        ("https://museum.example:8443/?b=2&a&a=1#top", "example,museum:8443)/?a&a=1&b=2"),
        ("http://www12.museum.example/%7Ea/%2525/%3F/%C3%A4?q=%20", "example,museum)/~a/%25/?/%c3%a4?q=%20"),
        ("http://192.0.2.7:8000/..", "7,2,0,192:8000)/.."),
        ("http://[2001:db8::1]/", "2001:db8::1)/"),
        (f"http://a.example/?jsessionid={_ID}&a=1", "example,a)/?a=1"),
        (f"http://a.example/?a=1&PHPSESSID={_ID}", "example,a)/?&a=1"),
        (f"http://a.example/?a=1&sid={_ID}x", f"example,a)/?a=1&sid={_ID.lower()}x"),
        ("http://a.example/?ASPSESSIONIDabcdefgh=abcdefghijklmnopqrstuvwx&a=1", "example,a)/?a=1"),
        ("http://a.example/?b=1&cfid=12&cftoken=34&a=1", "example,a)/?a=1&b=1"),
        ("http://a.example/x/(S(0123456789abcdefghijklmn))/a.aspx", "example,a)/x/a.aspx"),
        ("http://a.example/(0123456789abcdefghijklmn)/a.aspx?b", "example,a)/a.aspx?b"),
        ("http://a.example/(0123456789abcdefghijklmn)/a.html", "example,a)/(0123456789abcdefghijklmn)/a.html"),
    ],
)
def test_a_key_is_that_of_pywb(url: str, key: str) -> None:
    assert url_key(url) == key == _theirs(url)


_PART = st.text("aB9.%/;()=~_-+:@!*'ä", max_size=12) | st.sampled_from(["..", ".", "", "%2e%2E", "%252f", "www"])


@given(
    st.sampled_from(["http", "https"]),
    st.sampled_from(
        ["museum.example", "www.museum.example", "WWW2.a-b.example.", "127.0.0.1", "[::1]", "localhost"]
    ),
    st.sampled_from(["", ":80", ":443", ":8080"]),
    st.lists(_PART, max_size=5),
    st.lists(_PART.map(lambda one: one.replace(":", "&")), max_size=4),
)
def test_keys_of_other_urls_are_too(scheme: str, host: str, port: str, path: list[str], query: list[str]) -> None:
    url = f"{scheme}://{host}{port}/{'/'.join(path)}" + (f"?{'&'.join(query)}" if query else "")
    assert url_key(url) == _theirs(url)


@pytest.mark.parametrize("unit", ["%25", "25", "/..", "/a", "&a=1", "&cfid=1", "sid=", "("])
def test_a_key_takes_time_linear_in_the_length_of_the_url(unit: str) -> None:
    assert not fault(url_key, lambda size: "http://a.example/?%" + unit * (size // len(unit)), MOST_S)
