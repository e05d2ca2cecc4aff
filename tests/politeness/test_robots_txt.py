"""What a robots.txt means: groups, patterns, percent-encoding, delays, and how long it holds."""

from __future__ import annotations

import itertools
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from crawlproject.politeness.robots_txt import (
    MAX_BYTES,
    TOKEN,
    Rules,
    freshness,
    judge,
    robots_url,
)

SITE = "https://museum.org"

ALLOW_ALL = Rules.parse(b"")
DISALLOW_ALL = Rules.parse(b"User-agent: *\nDisallow: /")


def parse(text: str) -> Rules:
    return Rules.parse(text.encode())


def every(*lines: str) -> Rules:
    """Return what these lines say to all."""
    return parse("\n".join(("User-agent: *", *lines)))


def allowed(rules: Rules, *paths: str) -> list[str]:
    return [path for path in paths if rules.decide(SITE + path)[0]]


# --- groups ---------------------------------------------------------------------------------------------------

GROUPS = [  # paragraph of RFC 9309, robots.txt, is /a allowed
    ("2.1 the rules of our group", "User-agent: crawlproject\nDisallow: /a", False),
    ("2.1 a group may have several agents", "User-agent: x\nUser-agent: crawlproject\nDisallow: /a", False),
    ("2.1 an agent after a rule begins a group", "User-agent: *\nDisallow: /b\nUser-agent: x\nDisallow: /a", True),
    ("2.1 a rule that matches nothing is a rule", "User-agent: *\nDisallow: b\nUser-agent: x\nDisallow: /a", True),
    ("2.1 a rule before all agents is in no group", "Disallow: /a\nUser-agent: *\nDisallow: /b", True),
    ("2.2.1 upper and lower case are the same", "USER-AGENT: CrawlProject\nDISALLOW: /a", False),
    ("2.2.1 the group of our token alone counts", "User-agent: *\nDisallow: /a\nUser-agent: crawlproject", True),
    ("2.2.1 else the group of all", "User-agent: x\nAllow: /\n\nUser-agent: *\nDisallow: /a", False),
    ("2.2.1 else no rules", "User-agent: x\nDisallow: /", True),
    (
        "2.2.1 our groups are merged",
        "User-agent: crawlproject\nDisallow: /a\n\nUser-agent: crawlproject\nAllow: /b",
        False,
    ),
    ("2.2.1 a version is not part of the token", "User-agent: crawlproject/1.0\nDisallow: /a", False),
    ("2.2.1 the start of our token is another", "User-agent: crawl\nDisallow: /a", True),
    ("2.2.1 a longer token is another", "User-agent: crawlproject-images\nDisallow: /a", True),
    ("2.2.1 an asterisk in a name is not a wildcard", "User-agent: *bot\nDisallow: /a", True),
    ("2.2.4 a delay ends no list of agents", "User-agent: *\nCrawl-delay: 5\nUser-agent: x\nDisallow: /a", False),
    ("2.2.4 nor does an unknown line", "User-agent: *\nNoindex: /x\nUser-agent: x\nDisallow: /a", False),
    ("2.2.4 nor does a blank line", "User-agent: *\n\n \t\n\nUser-agent: x\n\nDisallow: /a", False),
    (
        "2.2.4 they end no rules",
        "User-agent: *\nDisallow: /b\n\nSitemap: /s\nCrawl-delay: 1\nNo: 1\nDisallow: /a",
        False,
    ),
    ("2.2.4 what only begins like a rule is ignored", "User-agent: *\nDisallowed: /a\nAllow-all: /b", True),
]


@pytest.mark.parametrize(("text", "allows"), [row[1:] for row in GROUPS], ids=[row[0] for row in GROUPS])
def test_groups(text: str, allows: bool) -> None:
    for ending in ("\n", "\r\n", "\r"):
        for last in ("", ending):
            assert parse(text.replace("\n", ending) + last).decide(SITE + "/a")[0] is allows


@pytest.mark.parametrize(
    "line",
    [
        "Disallow: /a",
        "Disallow : /a",
        "  Disallow\t:\t/a  ",
        "Disallow: /a # not this",
        "Disallow /a",
        "Disalow: /a",
    ],
)
def test_spellings_of_a_rule(line: str) -> None:
    assert allowed(every(line), "/a", "/ab", "/b") == ["/b"]


@pytest.mark.parametrize(
    "line", ["Disallow:", "Disallow: ", "Disallow: # all", "Disallow", "Allow:", "Disallow: a"]
)
def test_a_rule_without_a_path_says_nothing(line: str) -> None:
    rules = every(line)
    assert rules.decide(SITE + "/a")[0]
    assert rules.decide(SITE + "/a")[1] is None


def test_a_byte_order_mark_is_skipped() -> None:
    rules = Rules.parse(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a")
    assert not rules.decide(SITE + "/a")[0]


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_nothing_but_cr_and_lf_ends_a_line(character: str) -> None:
    assert every(f"Noindex: x{character}Disallow: /").decide(SITE + "/a")[0]


def test_invalid_utf_8_does_no_harm() -> None:
    rules = Rules.parse(b"\xff\xfe\nUser-agent: *\n\x80: \xc3\nDisallow: /caf\xe9\nDisallow: /b")
    assert allowed(rules, "/b", "/caf%E9", "/caf%E8", "/caf") == ["/caf%E8", "/caf"]
    assert rules.decide(SITE + "/caf%E9")[1] == (4, "Disallow: /caf\ufffd")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
    ],
)
def test_figure_4_of_2_2_2(pattern: str, path: str) -> None:
    for ours, theirs in ((pattern, path), (path, pattern)):
        assert allowed(every(f"Disallow: {ours}$"), theirs, theirs + "x") == [theirs + "x"]


# --- patterns ---------------------------------------------------------------------------------------------------

PATTERNS = [  # paragraph, pattern, paths that it matches, paths that it does not
    ("2.2.2 from the first octet on", "/a", ["/a", "/ab", "/a/b", "/a?b", "/a%20"], ["/", "/b/a", "/A", "/?/a"]),
    ("2.2.2 the root is all", "/", ["/", "/a", "/?a", "//", "", "?a"], []),
    ("2.2.2 the query counts", "/a?b=1", ["/a?b=1", "/a?b=12", "/a?b=1&c"], ["/a", "/a?c&b=1"]),
    ("2.2.2 unreserved octets", "/%7Ea%2Db%2e", ["/~a-b.", "/%7ea%2db%2E"], ["/~a-b"]),
    ("2.2.2 an encoded slash is not a slash", "/a%2fb", ["/a%2Fb", "/a%2fb"], ["/a/b", "/a%252Fb"]),
    ("2.2.2 in a query both are data", "/a?b=/c?d", ["/a?b=%2Fc%3Fd", "/a?b=/c?d"], ["/a%3Fb=/c?d"]),
    ("2.2.2 other reserved octets", "/a;b:[c]@,d", ["/a;b:[c]@,d", "/a%3Bb%3A%5Bc%5D%40%2Cd"], ["/a"]),
    ("2.2.2 a percent sign", "/100%", ["/100%", "/100%25", "/100%zz"], ["/100"]),
    ("2.2.2 octets that are not UTF-8", "/%E9", ["/%E9", "/%e9x"], ["/%E8", "/é", "/%EF%BF%BD"]),
    ("2.2.2 a fragment is not compared", "/a#", ["/a", "/ab", "/a#c"], ["/#/a"]),
    ("2.2.3 asterisk", "/a*b", ["/ab", "/axb", "/a/b", "/a?b", "/abc", "/aab"], ["/a", "/ba", "/bab"]),
    ("2.2.3 parts in their order", "/*a*b*a", ["/aba", "/xaxbxa"], ["/ab", "/baa"]),
    ("2.2.3 as far as the query's slash", "/*/x", ["/a/x", "/a?b=/x", "/a?b=%2Fx"], ["/x", "/a%2Fx"]),
    ("2.2.3 dollar", "/a$", ["/a"], ["/ab", "/a/", "/a?b", "/a$", "/a%24", "/a$b"]),
    ("2.2.3 the parts do not overlap", "/ab*b$", ["/abb", "/abab"], ["/ab"]),
    ("2.2.3 a dollar elsewhere is a dollar", "/a$b", ["/a$b", "/a%24b"], ["/a", "/ab"]),
    ("2.2.3 an encoded asterisk is not a wildcard", "/a-%2A.html", ["/a-*.html", "/a-%2a.html"], ["/a-b.html"]),
    ("2.2.3 an encoded dollar is not the end", "/foo-%24", ["/foo-$", "/foo-%24", "/foo-$x"], ["/foo-"]),
]


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"), [row[1:] for row in PATTERNS], ids=[row[0] for row in PATTERNS]
)
def test_patterns(pattern: str, hits: list[str], misses: list[str]) -> None:
    refused = every(f"Disallow: {pattern}")
    assert allowed(refused, *hits, *misses) == misses
    exempt = every("Disallow: /", f"Allow: {pattern}")
    assert allowed(exempt, *hits, *misses) == hits


PRECEDENCE = [  # paragraph, rules, path, number of the line that decides
    ("2.2.2 the longer one", ["Disallow: /a", "Allow: /ab"], "/abc", 3),
    ("2.2.2 Allow of two equal ones", ["Disallow: /a", "Allow: /a"], "/a", 3),
    ("2.2.2 Allow of two of one length", ["Disallow: /*b", "Allow: /ab"], "/ab", 3),
    ("2.2.2 the first of two of one kind", ["Allow: /", "Disallow: /a", "Disallow: /a"], "/a", 3),
    ("2.2.2 none", ["Disallow: /a"], "/b", None),
    ("2.2.3 an asterisk is an octet", ["Allow: /page", "Disallow: /*.htm"], "/page.htm", 3),
    ("2.2.3 a dollar is an octet", ["Disallow: /", "Allow: /$"], "/", 3),
    ("2.2.2 a question mark is one octet", ["Disallow: /*?", "Allow: /img"], "/img?a", 3),
    ("2.2.2 an octet outside ASCII counts encoded", ["Disallow: /aaaaa", "Allow: /*é"], "/aaaaaé", 3),
    ("2.2.2 an octet outside ASCII counts encoded", ["Disallow: /aaaaaaaa", "Allow: /*é"], "/aaaaaaaaé", 2),
    ("2.2.2 an encoded octet counts decoded", ["Disallow: /%61", "Allow: /ab"], "/ab", 3),
]


@pytest.mark.parametrize(
    ("lines", "path", "number"), [row[1:] for row in PRECEDENCE], ids=[row[0] for row in PRECEDENCE]
)
def test_which_rule_decides(lines: list[str], path: str, number: int | None) -> None:
    rules = every(*lines)
    line = ["User-agent: *", *lines][number - 1] if number else ""
    assert rules.decide(SITE + path)[1] == ((number, line) if number else None)
    assert rules.decide(SITE + path)[0] is not line.startswith("Disallow")


def test_robots_txt_itself_is_always_allowed() -> None:
    paths = ("/robots.txt", "/robots.txt?a=b", "/Robots.txt", "/a/robots.txt")
    assert allowed(DISALLOW_ALL, *paths) == ["/robots.txt", "/robots.txt?a=b"]


@pytest.mark.parametrize("url", ["http://[::1/a", "http://h:port/", "", "\ud800", "http:// /\n"])
def test_no_url_is_too_odd_for_an_answer(url: str) -> None:
    assert ALLOW_ALL.decide(url)[0]
    assert ALLOW_ALL.decide(url)[1] is None
    assert not DISALLOW_ALL.decide(url)[0]
    assert DISALLOW_ALL.decide(url)[1] == (2, "Disallow: /")


# --- against other matchers -------------------------------------------------------------------------------------


# Without what Protego treats differently: "?", "&" and "=" in a pattern count as three octets, and an anchor
# matches a "$" in a path, too.
PIECES = st.sampled_from(["/", "a", "b", ".", "-", "é", "%c3%A9", "%61", "ツ", "%E3%83%84"])
PATTERN = st.builds(
    "/{}{}".format, st.lists(PIECES | st.just("*"), max_size=6).map("".join), st.sampled_from(["", "$"])
)


@given(
    rules=st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PATTERN), max_size=6),
    path=st.lists(PIECES | st.just("?"), max_size=8).map("".join),
)
def test_protego_decides_the_same(rules: list[tuple[str, str]], path: str) -> None:
    text = "\n".join(("User-agent: *", *(f"{kind}: {pattern}" for kind, pattern in rules)))
    assert parse(text).decide(f"{SITE}/{path}")[0] is Protego.parse(text).can_fetch(f"{SITE}/{path}", TOKEN)


# --- hostile input ----------------------------------------------------------------------------------------------


def test_rules_that_say_the_same_are_judged_once() -> None:
    many = every(*["Disallow: /*b*c"] * 1000, "Disallow: /x", "Content-Usage: /*b train-ai=n", "Allow: /*b*c")
    assert many.work(SITE + "/p") == (2 + 2 + 1) * (100 + len("/p"))
    assert many.decide(SITE + "/abc")[1] == (1004, "Allow: /*b*c")
    once = every("Disallow: /x/*b", *["Disallow: /x/*b"] * 1000)
    assert once.decide(SITE + "/x/b")[1] == (2, "Disallow: /x/*b")
    assert once.work(SITE + "/y/b") == 0  # the path does not begin as the rule does


@pytest.mark.parametrize(
    ("tail", "allows"),
    [
        (b"Disallow: /", False),  # ends where the reading ends
        (b"Disallow: /\nAllow: /a", False),
        (b"Disallow: /\rAllow: /a", False),
        (b"Disallow: /private", True),  # cut to "Disallow: /"
    ],
)
def test_a_line_that_is_cut_off_says_nothing(tail: bytes, allows: bool) -> None:
    body = b"User-agent: *\n#"
    body += b"x" * (MAX_BYTES - len(body) - len(b"\nDisallow: /")) + b"\n" + tail
    assert body[MAX_BYTES - 1 : MAX_BYTES] == b"/"
    assert Rules.parse(body).decide(SITE + "/a")[0] is allows


# --- delays -----------------------------------------------------------------------------------------------------


NO_RATES = "", "5", "1/", "/5", "0/5", "1/0", "-1/5", "1/-5", "a/b", "1/5 min", "1/5w", "1.5/2", "1/9999999999"


@pytest.mark.parametrize(
    ("lines", "delay"),
    [
        ([], None),
        (["Crawl-delay: 5"], 5.0),
        (["Crawl-delay: 0"], 0.0),
        (["Crawl-delay: 5", "Crawl-delay: 7", "Crawl-delay: 6"], 7.0),
        *(([f"Crawl-delay: {nonsense}"], None) for nonsense in ("", "-1", "nan", "inf", "1e999", "9" * 400)),
        *(([f"Crawl-delay: {nonsense}"], None) for nonsense in ("soon", "1,5", "5s", "1_0", "١", "5 6")),
        (["Crawl-delay: 5", "Crawl-delay: soon"], 5.0),
        (["Request-rate: 1/1m"], 60.0),
        (["request-rate:10/1"], 0.1),
        (["Request-rate: 1/1m 0900 - 1730 UTC"], 60.0),
        *(([f"Request-rate: {nonsense}"], None) for nonsense in NO_RATES),
        (["Crawl-delay: 5", "Request-rate: 1/10"], 10.0),
    ],
)
def test_delay(lines: list[str], delay: float | None) -> None:
    assert every(*lines).delay == delay


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("User-agent: *\nCrawl-delay: 9\nAllow: /\nUser-agent: crawlproject\nCrawl-delay: 2", 2.0),
        ("User-agent: *\nCrawl-delay: 9\nAllow: /\nUser-agent: crawlproject\nAllow: /", None),
        ("User-agent: crawlproject\nCrawl-delay: 1\nAllow: /\nUser-agent: crawlproject\nCrawl-delay: 3", 3.0),
        ("User-agent: x\nCrawl-delay: 9\nUser-agent: *\nDisallow: /", None),  # said to x, the rule is to both
        ("User-agent: *\nCrawl-delay: 9\nUser-agent: x\nCrawl-delay: 5", 9.0),
        ("Crawl-delay: 9\nUser-agent: *\nDisallow: /", None),
    ],
)
def test_a_delay_is_for_the_agents_named_above_it(text: str, delay: float | None) -> None:
    assert parse(text).delay == delay


# --- how long it holds, and where it is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 86400.0),
        (b"public, MAX-AGE=3600, must-revalidate", 3600.0),
        (b'max-age="3600"', 3600.0),
        (b"max-age=3600,max-age=7200", 3600.0),
        (b"max-age=0", 60.0),
        (b"no-store", 60.0),
        (b"No-Cache, max-age=3600", 60.0),
        (b"s-maxage=100", 86400.0),
        (b'private="a, max-age=100, no-store"', 86400.0),
    ],
)
def test_freshness(header: bytes | None, seconds: float) -> None:
    assert freshness(header) == seconds


@pytest.mark.parametrize(
    ("url", "robots"),
    [
        ("https://museum.org/a/b.jpg?c#d", "https://museum.org/robots.txt"),
        ("HTTP://WWW.Museum.ORG/A", "http://www.museum.org/robots.txt"),
        ("http://museum.org:80/a", "http://museum.org/robots.txt"),
        ("http://museum.org:443/a", "http://museum.org:443/robots.txt"),
        ("https://me:secret@museum.org/a@b", "https://museum.org/robots.txt"),
        ("http://[2001:DB8::7]:8080/a", "http://[2001:db8::7]:8080/robots.txt"),
    ],
)
def test_robots_url(url: str, robots: str) -> None:
    assert robots_url(url) == robots
    assert robots_url(robots) == robots


@pytest.mark.parametrize(
    "url", ["", "/a", "museum.org/a", "http:///a", "mailto:a@b.org", "http://h:port/", "http://[::1/"]
)
def test_a_url_without_a_robots_txt(url: str) -> None:
    with pytest.raises(ValueError):
        robots_url(url)


@pytest.mark.parametrize(
    ("body", "empty"),
    [
        (b"", True),
        (b"User-agent: other\nDisallow: /\n", True),
        (b"User-agent: *\nAllow: /\n", False),
        (b"User-agent: *\nCrawl-delay: 5\n", False),
        (b"User-agent: crawlproject\nDisallow: /private\n", False),
    ],
)
def test_a_robots_txt_without_rules_for_us_is_recognised(body: bytes, empty: bool) -> None:
    assert Rules.parse(body).is_empty is empty


# Opt-outs (draft-ietf-aipref-attach, contentsignals.org)

AI_N = "content-usage:train-ai"
SIGNAL_N = "content-signal:ai-train"


@pytest.mark.parametrize(
    ("lines", "path", "opt_outs"),
    [
        (["Content-Usage: / train-ai=n"], "/a", {AI_N: 2}),
        (["Content-Usage: train-ai=n"], "/a", {AI_N: 2}),  # drafts up to -01, and as in the header
        (["content-USAGE :\t/a/\ttrain-ai=n  # no"], "/a/b", {AI_N: 2}),
        (["Content-Usage: /a/ train-ai=n"], "/b", {}),
        (["Content-Usage: / train-ai=n", "Content-Usage: /ok/ train-ai=y"], "/ok/b", {}),
        (["Content-Usage: /ok/ train-ai=n", "Content-Usage: / train-ai=y"], "/ok/b", {AI_N: 2}),
        (["Content-Usage: / train-ai=y", "Content-Usage: / train-ai=n"], "/a", {AI_N: 3}),
        (["Content-Usage: / train-ai=n", "Content-Usage: / search=n"], "/a", {"content-usage:search": 3, AI_N: 2}),
        (["Content-Usage: /*.jpg$ train-ai=n"], "/a/b.jpg", {AI_N: 2}),
        (["Content-Usage: / train-ai=n, search=y;a=1, unknown=n"], "/a", {AI_N: 2}),
        (["Content-Signal: search=yes, ai-train=no"], "/a", {SIGNAL_N: 2}),
        (["Content-Signal: /photos/ ai-train=no"], "/a", {}),
        # Each of the two for itself
        (["Content-Signal: ai-train=no", "Content-Usage: /a train-ai=y"], "/a", {SIGNAL_N: 2}),
    ],
)
def test_opt_outs_hold_for_the_paths_of_the_longest_line(
    lines: list[str], path: str, opt_outs: dict[str, int]
) -> None:
    found = every(*lines).opt_outs(SITE + path)
    assert {name: number for name, (number, _) in found.items()} == opt_outs
    assert list(found) == sorted(found)
    assert every(*lines).decide(SITE + path)[0]  # they say nothing about fetching


def test_the_line_of_an_opt_out_is_reported_as_it_stands_in_the_file() -> None:
    rules = Rules.parse(b"User-agent: *\n\tContent-Signal: ai-train=no # please \n")
    assert rules.opt_outs(SITE) == {SIGNAL_N: (2, "Content-Signal: ai-train=no # please")}
    assert not rules.is_empty


def test_opt_outs_belong_to_groups_and_are_rules_of_them() -> None:
    ours = "User-agent: crawlproject\nContent-Signal: ai-train=no\nUser-agent: other\nDisallow: /\n"
    rules = Rules.parse(f"User-agent: *\nContent-Usage: / train-ai=n\n{ours}".encode())
    assert list(rules.opt_outs(SITE + "/a")) == [SIGNAL_N]
    assert rules.decide(SITE + "/a")[0]
    others = Rules.parse(b"Content-Usage: / train-ai=n\nUser-agent: other\nContent-Signal: ai-train=no\n")
    assert others.opt_outs(SITE + "/a") == {}
    assert others.is_empty


# Verdicts on URLs, within bounds

ENDS = ["".join(letters) for letters in itertools.product(string.ascii_lowercase[1:], repeat=3)]
# 30,000 rules of which each looks everywhere in a path of many "a", in vain
SLOW = [f"Disallow:/*a{end}" for end in ENDS] + [f"Disallow:/*aa{end}" for end in ENDS]
HOSTILE = ("User-agent: *\n" + "\n".join(SLOW[:30_000]) + "\nDisallow: /private\n").encode()
QUICK_S = 2.0  # of CPU, for what takes minutes when nothing bounds it


def test_a_url_that_would_take_too_long_is_not_fetched() -> None:
    assert len(HOSTILE) <= MAX_BYTES
    rules = Rules.parse(HOSTILE)
    began = time.thread_time()
    for number in range(20):
        url = f"{SITE}/{'a' * 8000}{number}"
        verdict = judge(rules, url)
        assert not verdict.allowed
        assert f"too many rules with wildcards to judge a URL of {len(url)} characters" in verdict.reason
    assert time.thread_time() - began < QUICK_S
