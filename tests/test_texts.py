"""Untrusted texts as shown: none moves a cursor, ends a line, or reveals a password."""

from __future__ import annotations

import json
import time
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from crawlproject.politeness.addresses import literal
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
            assert literal(host) is None


@pytest.mark.parametrize("url", ["http://a.org", "https://b-1.A.museum/x.jpg?y=@&z#[1]", "http://1.2.co/"])
def test_most_urls_are_plain(url: str) -> None:
    assert domains.plain_host(url) == urlsplit(url).hostname


def test_what_is_printable_stays_and_the_rest_is_marked() -> None:
    assert printable("Žižkov 馬 😀") == "Žižkov 馬 😀"
    assert printable(NASTY).isprintable()
    assert len(printable("x" * 1000)) == 200
    assert printable("abc", 2) == "ab"


def test_what_a_terminal_obeys_is_marked_and_lines_stay() -> None:
    assert visible("a\tb\nŽižkov 馬") == "a\tb\nŽižkov 馬"
    assert visible(NASTY).replace("\n", "").replace("\t", "").isprintable()
    assert len(visible("\x1b]0;x\x07" * 1000)) == 6000


@given(st.text(st.characters()))
def test_every_text_is_made_printable(text: str) -> None:
    assert printable(text).isprintable()


@given(st.recursive(st.text(st.characters()) | st.integers() | st.none(), st.lists))
def test_json_of_one_line_says_the_same_on_one_line(data: object) -> None:
    text = one_line(data)
    assert json.loads(text) == data
    assert text.isascii() or len(text.splitlines()) == 1
    text.encode()  # it is written to files and Redis


def test_json_of_one_line_has_null_for_numbers_that_json_has_not() -> None:
    data = {"title": "馬", "a": float("nan"), "b": [1.5, float("inf"), (-float("inf"), None)]}
    assert one_line(data) == '{"title":"馬","a":null,"b":[1.5,null,[null,null]]}'


def test_json_of_one_line_keeps_letters_and_escapes_control_characters() -> None:
    text = one_line({"title": "馬 😀 " + NASTY})
    assert text.startswith('{"title":"馬 😀 ')
    assert text.isprintable()
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pw@h/", "http://***@h/"),
        ("http://user@h", "http://***@h"),
        ("http://:pw@h/", "http://***@h/"),
        ("ftp://u:p@h/ and //a@b", "ftp://***@h/ and //***@b"),
        ("http://u:p@w@h/", "http://***@h/"),
        ("http://u:p/w@h/x", "http://***@h/x"),
        ("http://u:p?w@h/x", "http://***@h/x"),
        ("http://u:p\\w@h/x", "http://***@h/x"),
        ('{"url": "http:\\/\\/u:p@h\\/x"', '{"url": "http:\\/\\/***@h\\/x"'),
        # these have no userinfo
        ("http://h/@u/x", "http://h/@u/x"),
        ("http://h:8080/a@b", "http://h:8080/a@b"),
        ("http://h:8080?a@b", "http://h:8080?a@b"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("u:p@h", "u:p@h"),
    ],
)
def test_user_names_and_passwords_are_masked(text: str, shown: str) -> None:
    assert without_userinfo(text) == shown


@pytest.mark.parametrize(
    "seed",
    [
        "http://me:S3CRET@h/",
        '{"url": "http://me:S3CRET@h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040h/"}',
        r'{"url": "http:\u002f\u002fme:S3CRET\u0040g/", "url": "http://***@h/"}',
        r'{"url": [{"http:\/\/me:S3CRET\u0040h/": 1}]}',
        '{"url": "http://me:S3CRET@h/',
        '"http://me:S3CRET@h/"',
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
    """Scrapy logs a request's URL as it is; everything after the host is percent-encoded by then."""
    url = f"http://{host}/\u2028"
    if url_fault(url) is None:
        asked = Request(url).url
        assert asked.isascii()
        assert asked.isprintable()
        assert url_fault(asked) is None
        assert "@" not in urlsplit(asked).netloc  # in a fragment it names nobody


@pytest.mark.parametrize(
    "text",
    [
        "//a:b" * 100_000,
        "//a:b" * 100_000 + "@",
        "@" + "//a:b" * 100_000,
        "//a:b" * 100_000 + " @" * 1000,
        ("//a:b" * 50 + "@ ") * 2000,
        "\\\\/" * 100_000 + "@",
    ],
)
def test_masking_takes_time_linear_in_the_length(text: str) -> None:
    began = time.process_time()
    without_userinfo(text)
    assert time.process_time() - began < 1  # it was minutes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # URLs
        ("redis://:S3CRET@host/0 is away", "redis://***@host/0 is away"),
        (
            "redis+sentinel://u:S3CRET@a/s?sentinel_password=S3C&x",
            "redis+sentinel://***@a/s?sentinel_password=***&x",
        ),
        ("GET https://a.org/p.jpg?w=9&sig=S3CRET%3D&v=1", "GET https://a.org/p.jpg?w=9&sig=***&v=1"),
        ("https://a.org/?api_key=S3CRET#x", "https://a.org/?api_key=***"),
        ("https://a.org/?apikey=S3CRET", "https://a.org/?apikey=***"),
        ("https://a.org/?key=S3CRET&w=1", "https://a.org/?key=***&w=1"),
        ("https://a.org/?auth=S3CRET", "https://a.org/?auth=***"),
        ("https://a.org/?access_token=S3CRET&w=1", "https://a.org/?access_token=***&w=1"),
        ("https://a.org/cb?code=S3CRET", "https://a.org/cb?code=***"),
        ("https://b/?X-Amz-Signature=S3CRET&a=b", "https://b/?X-Amz-Signature=***&a=b"),
        ("https://b/?X-Amz-Credential=S3CRET%2F2024&a=b", "https://b/?X-Amz-Credential=***&a=b"),
        ("https://b/?X-Amz-Security-Token=S3CRET", "https://b/?X-Amz-Security-Token=***"),
        ("https://b/?X-Goog-Signature=S3CRET", "https://b/?X-Goog-Signature=***"),
        ("https://a/?next=https%3A%2F%2Fu%3AS3CRET%40b.org%2F", "https://a/?next=https%3A%2F%2F***%40b.org%2F"),
        ("https://a/?q=password%3DS3CRET&x=1", "https://a/?q=password%3D***&x=1"),
        ("https://a/?q=%22token%22%3A%22S3CRET%22", "https://a/?q=%22token%22%3A%22***%22"),
        ("https://hooks.slack.com/services/T0/B0/S3CRET", "https://hooks.slack.com/services/***"),
        ("https://api.telegram.org/bot123456:S3CRETS3CRET/x", "https://api.telegram.org/bot123456:***/x"),
        # Headers
        ("Authorization: Bearer S3CRET", "Authorization: ***"),
        ("authorization: basic dTpTM0NSRVQ=", "authorization: ***"),
        ("Proxy-Authorization: Digest username=u, response=S3CRET", "Proxy-Authorization: ***"),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=S3CRET/x, Signature=S3CRET\nHost: a",
            "Authorization: ***\nHost: a",
        ),
        ("sent 'Authorization: Bearer S3CRET' to a.org", "sent 'Authorization: ***' to a.org"),
        ("Cookie: a=S3CRET; b=S3CRET", "Cookie: ***"),
        ("Set-Cookie: sid=S3CRET; Path=/", "Set-Cookie: ***"),
        ("X-Api-Key: S3CRET", "X-Api-Key: ***"),
        ("X-Auth-Token: S3CRET, Accept: */*", "X-Auth-Token: ***, Accept: */*"),
        ("{b'Authorization': [b'Bearer S3CRET']}", "{b'Authorization': ***]}"),
        ("{b'Cookie': [b'a=S3CRET; b=c']}", "{b'Cookie': ***]}"),
        ("[('Authorization', 'Bearer S3CRET'), ('A', 'b')]", "[('Authorization', ***), ('A', 'b')]"),
        ("got Bearer S3CRET.x-y_z= from a.org", "got Bearer *** from a.org"),
        ("got Basic dTpTM0NSRVQ= from a.org", "got Basic *** from a.org"),
        # Settings, JSON, Python
        ("{'AWS_SECRET_ACCESS_KEY': 'S3CRET',\n 'BOT': 'b'}", "{'AWS_SECRET_ACCESS_KEY': ***,\n 'BOT': 'b'}"),
        ('{"CRAWL_DASHBOARD_PASSWORD": "S3CRET"}', '{"CRAWL_DASHBOARD_PASSWORD": ***}'),
        ('{"password":"S3\\"CRET","a":1}', '{"password":***,"a":1}'),
        (r'"{\"password\": \"S3CRET\", \"a\": 1}"', r'"{\"password\": ***, \"a\": 1}"'),
        (r'"{\\\"apiKey\\\": \\\"S3CRET\\\"}"', r'"{\\\"apiKey\\\": ***}"'),
        (r"'{\'secret\': \'S3CRET\'}'", r"'{\'secret\': ***}'"),
        ("{'pass': 'S3CRET'}", "{'pass': ***}"),
        ("{'clientSecret' => 'S3CRET'}", "{'clientSecret' => ***}"),
        ("{'password': b'S3CRET'}", "{'password': ***}"),
        ("{'tokens': ['S3CRET', 1]}", "{'tokens': ***, 1]}"),
        ("Login(user='u', password='S3CRET')", "Login(user='u', password=***)"),
        ("password=SecretStr('S3CRET')", "password=***"),
        ("('password', 'S3CRET')", "('password', ***)"),
        ("{'aws_session_token': 'S3CRET'}", "{'aws_session_token': ***}"),
        ("<password>S3CRET</password>", "<password>***</password>"),
        # Environments, files, commands
        ("SCRAPYD_PASSWORD=S3CRET scrapyd", "SCRAPYD_PASSWORD=*** scrapyd"),
        ("PGPASSWORD=S3CRET MYSQL_PWD=S3CRET x", "PGPASSWORD=*** MYSQL_PWD=*** x"),
        ("REDISCLI_AUTH=S3CRET", "REDISCLI_AUTH=***"),
        ("password = S3CRET", "password = ***"),
        ("requirepass: S3CRET; more", "requirepass: ***; more"),
        ("password: S3CRET", "password: ***"),
        ("token:S3CRET", "token:***"),
        ("sasl.password=S3CRET,sasl.mechanism=PLAIN", "sasl.password=***,sasl.mechanism=PLAIN"),
        ('Module required username="u" password="S3CRET";', 'Module required username="u" password=***;'),
        ("AccountName=a;AccountKey=S3CRET==;Suffix=b", "AccountName=a;AccountKey=***;Suffix=b"),
        ("redis-cli --pass S3CRET ping", "redis-cli --pass *** ping"),
        ("tool --api-key 'S3CRET' -v", "tool --api-key *** -v"),
        ("curl -u crawl:S3CRET http://a", "curl -u crawl:*** http://a"),
        ("curl --user crawl:S3CRET http://a", "curl --user crawl:*** http://a"),
        ("PHPSESSID=S3CRET; a", "PHPSESSID=***; a"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nS3CRET\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
        ),
        # Known by their own shape
        ("got eyJhbGciOiJI.eyJzdWIiOiIx.S3CRET x", "got *** x"),
        ("got ghp_S3CRETS3CRETS3CRETS3CRETS3CRETS3CRET x", "got *** x"),
        ("got xoxb-1234-S3CRETS3CRET x", "got *** x"),
        ("got AIzaS3CRETS3CRETS3CRETS3CRETS3CRETS3CRE x", "got *** x"),
        ("got sk-S3CRETS3CRETS3CRET x", "got *** x"),
        ("got glpat-S3CRETS3CRETS3CR x", "got *** x"),
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
        "no token for museum: 3",
        "bad credentials: check AWS_ACCESS_KEY_ID",
        "the bearer of this; a bearer token; basic authentication is required",
        "{'AWS_ACCESS_KEY_ID': 'id', 'BOT_NAME': 'crawlproject', 'author': 'x', 'signal': 9}",
        "GET https://a.org/secrets/passage/signature.jpg?author=me&monkey=1&passport=2",
        "token bucket; tokens are leased; the session is over: 3 of 4",
        "Crawled (200) <GET http://museum.org/1.jpg> (referer: None) [source=museum identifier=b-1]",
        "crawl:images:seen:12 crawl:rates crawl:robots:http://a.org/robots.txt",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "password",
        "password=",
        "token='",
        'secret\\"',
        "bearer ",
        "https%3A%2F%2F",
        "--pass ",
        "-----BEGIN PRIVATE KEY-----",
        "Cookie:",
        "a",
        "A ",
        "'password': \\'",
        "<token>",
        "?key=",
        "eyJaaaaa.",
        "basic A",
        "-u a:",
        "_",
        "%3D",
        "\\",
        "//a:",
    ],
)
def test_no_text_takes_long(part: str) -> None:
    text = part * (500_000 // len(part))
    began = time.process_time()
    without_secrets(text)
    assert time.process_time() - began < 10  # seconds; what is quadratic takes minutes
