"""Untrusted texts as shown: none moves a cursor, ends a line, or reveals a password."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from crawlproject.sources import domains
from crawlproject.sources.domains import url_fault
from crawlproject.texts import (
    one_line,
    printable,
    shown_seed,
    visible,
    without_secrets,
    without_userinfo,
)

NASTY = "\x00\x07\x1b[31m\r\n\t\x7f\x85\x9b\u200f\u2028\u2029\u202e\u2066\ufeff\ud800"


@given(
    st.text("/.@:[]\\?#%-_aZ09 \x7f\té", max_size=12), st.sampled_from(["http://", "HTTPS://", "https://m.", ""])
)
@example("a.org", "http://")
@example("a-.0x1f", "https://")
@example("museum.org/a@b:80[", "http://")
def test_a_plain_url_is_one_in_which_nothing_else_is_found(text: str, begin: str) -> None:
    for url in (begin + text, f"{begin}{text}.org/{text}"):
        if host := domains.plain_host(url):
            assert domains._fault_in_parts(url) is None
            assert urlsplit(url).hostname == host


def test_what_is_printable_stays_and_the_rest_is_marked() -> None:
    assert printable("Žižkov 馬 😀") == "Žižkov 馬 😀"
    assert printable(NASTY).isprintable()
    assert len(printable("x" * 1000)) == 200
    assert printable("abc", 2) == "ab"


def test_what_a_terminal_obeys_is_marked_and_lines_stay() -> None:
    assert visible("a\tb\nŽižkov 馬") == "a\tb\nŽižkov 馬"
    assert visible(NASTY).replace("\n", "").replace("\t", "").isprintable()
    assert len(visible("\x1b]0;x\x07" * 1000)) == 6000


@given(st.recursive(st.text(st.characters()) | st.integers() | st.none(), st.lists))
def test_json_of_one_line_says_the_same_on_one_line(data: object) -> None:
    text = one_line(data)
    assert json.loads(text) == data
    assert text.isascii() or len(text.splitlines()) == 1
    text.encode()  # it is written to files and Redis


def test_json_of_one_line_has_null_for_numbers_that_json_has_not() -> None:
    data = {"title": "馬", "a": float("nan"), "b": [1.5, float("inf"), (-float("inf"), None)]}
    assert one_line(data) == '{"title":"馬","a":null,"b":[1.5,null,[null,null]]}'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pw@h/", "http://***@h/"),
        ("ftp://u:p@h/ and //a@b", "ftp://***@h/ and //***@b"),
        ("http://u:p@w@h/", "http://***@h/"),
        ("http://u:p/w@h/x", "http://***@h/x"),
        ('{"url": "http:\\/\\/u:p@h\\/x"', '{"url": "http:\\/\\/***@h\\/x"'),
        # these have no userinfo
        ("http://h/@u/x", "http://h/@u/x"),
        ("http://h:8080/a@b", "http://h:8080/a@b"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
    ],
)
def test_user_names_and_passwords_are_masked(text: str, shown: str) -> None:
    assert without_userinfo(text) == shown


@pytest.mark.parametrize(
    "seed",
    [
        '{"url": "http://me:S3CRET@h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040g/", "url": "http://***@h/"}',
        r'{"url": [{"http:\/\/me:S3CRET\u0040h/": 1}]}',
    ],
)
def test_a_seed_is_shown_without_its_password(seed: str) -> None:
    shown = shown_seed(seed)
    assert "S3CRET" not in shown
    assert "***@h/" in shown


@pytest.mark.parametrize(
    "seed", ["", "x", "[" * 100_000, '{"url": NaN}', '{"a": 1, "a": 2}', '{"url":  "http://h/@x"}']
)
def test_a_seed_without_one_is_shown_as_it_came(seed: str) -> None:
    assert shown_seed(seed) == seed


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_host_cannot_forge_a_log_line(host: str) -> None:
    url = f"http://{host}/\u2028"
    if url_fault(url) is None:
        asked = Request(url).url
        assert asked.isascii()
        assert asked.isprintable()
        assert url_fault(asked) is None
        assert "@" not in urlsplit(asked).netloc  # in a fragment it names nobody


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # URLs
        (
            "redis+sentinel://u:S3CRET@a/s?sentinel_password=S3C&x",
            "redis+sentinel://***@a/s?sentinel_password=***&x",
        ),
        ("GET https://a.org/p.jpg?w=9&sig=S3CRET%3D&v=1", "GET https://a.org/p.jpg?w=9&sig=***&v=1"),
        ("https://b/?X-Amz-Signature=S3CRET&a=b", "https://b/?X-Amz-Signature=***&a=b"),
        ("https://a/?q=%22token%22%3A%22S3CRET%22", "https://a/?q=%22token%22%3A%22***%22"),
        # Headers
        ("authorization: basic dTpTM0NSRVQ=", "authorization: ***"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=S3CRET/x\nHost: a", "Authorization: ***\nHost: a"),
        ("Set-Cookie: sid=S3CRET; Path=/", "Set-Cookie: ***"),
        ("{b'Authorization': [b'Bearer S3CRET']}", "{b'Authorization': ***]}"),
        ("[('Authorization', 'Bearer S3CRET'), ('A', 'b')]", "[('Authorization', ***), ('A', 'b')]"),
        ("got Bearer S3CRET.x-y_z= from a.org", "got Bearer *** from a.org"),
        # Settings, JSON, Python
        ("{'AWS_SECRET_ACCESS_KEY': 'S3CRET',\n 'BOT': 'b'}", "{'AWS_SECRET_ACCESS_KEY': ***,\n 'BOT': 'b'}"),
        ('{"password":"S3\\"CRET","a":1}', '{"password":***,"a":1}'),
        (r'"{\"password\": \"S3CRET\", \"a\": 1}"', r'"{\"password\": ***, \"a\": 1}"'),
        ("password=SecretStr('S3CRET')", "password=***"),
        ("<password>S3CRET</password>", "<password>***</password>"),
        # Environments, files
        ("PGPASSWORD=S3CRET MYSQL_PWD=S3CRET x", "PGPASSWORD=*** MYSQL_PWD=*** x"),
        ("sasl.password=S3CRET,sasl.mechanism=PLAIN", "sasl.password=***,sasl.mechanism=PLAIN"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nS3CRET\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
        ),
    ],
)
def test_secrets_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert "S3C" not in shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a user name or password: leave it out",
        "the bearer of this; a bearer token; basic authentication is required",
        "{'AWS_ACCESS_KEY_ID': 'id', 'BOT_NAME': 'crawlproject', 'author': 'x', 'signal': 9}",
        "GET https://a.org/secrets/passage/signature.jpg?author=me&monkey=1&passport=2",
        "Crawled (200) <GET http://museum.org/1.jpg> (referer: None) [source=museum identifier=b-1]",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert without_secrets(text) == text
