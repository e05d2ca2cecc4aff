"""What a site lets robots do: its robots.txt (RFC 9309), and opt-outs, also those in the headers of a response.

`pages/rules.py` reads opt-outs in a page's meta tags.

Not Protego, Scrapy's parser: it departs from the RFC (`Allow: /index.html` allows `/`, an anchored pattern matches
a literal `$`, agents match by prefix), and does not say which line decides. A test compares the two where Protego
follows the RFC.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from crawlproject.config import Config
from crawlproject.models import OPT_OUTS
from crawlproject.sources.domains import RECENT, host_of_url, origin_of
from crawlproject.texts import printable

TOKEN = "crawlproject"  # our product token, RFC 9309 2.2.1
MAX_BYTES = 500 * 1024  # of a robots.txt that are read, RFC 9309 2.5
MOST_DELAY_S = 60.0  # between two requests to a source, whatever its robots.txt asks for

# Of 50,000 rules with wildcards, and a URL of 8,192 characters, a verdict would take half a second.
_MOST_WORK = 1_500_000  # in the steps of `Rules.work`, some 3 ns each: 4 ms

_OURS = frozenset({TOKEN, "*"})  # our product token, and the one for all bots
_WITH_VALUE = ("max-", "unavailable_after")  # rules with a colon, to be told from the names of bots
_WEEKDAY = re.compile(r"\s*(mon|tue|wed|thu|fri|sat|sun)[a-z]*\s*")
_LONGEST_DATE = 64  # characters

_DEFAULT_PORTS = {"http": 80, "https": 443}

# The names that Google's parser and Protego know, misspellings included: who writes them means them.
_LINE = re.compile(
    rb"(?:(?P<agent>user[- ]?agent)|(?P<allow>allow)|(?P<delay>crawl[- ]delay)|(?P<rate>request[- ]rate)"
    rb"|(?P<usage>content-usage|content-signal)"
    rb"|(?P<disallow>disallow|dissallow|dissalow|disalow|diasllow|disallaw))(?:\s*:|\s|$)\s*(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_AGENT = re.compile(rb"\*(?=\s|$)|[A-Za-z_-]*")
_DELAY = re.compile(rb"\d+(?:\.\d*)?|\.\d+")
_RATE = re.compile(rb"(\d{1,9})\s*+/\s*+(\d{1,9})(?:\s*+([smhd]))?+(?:\s++\d.*)?", re.IGNORECASE | re.DOTALL)
_SECONDS = {b"": 1, b"s": 1, b"m": 60, b"h": 3600, b"d": 86400}
_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?([^#]*)", re.DOTALL)  # RFC 3986, appendix B
_DIRECTIVE = re.compile(rb'([^\s,="]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?')

# Patterns and paths are compared in one spelling: these characters as they are (RFC 3986, 3.3), others as %XX.
_PLAIN = string.ascii_letters + string.digits + "-._~!$&'()+,;=:@"
_TO_SPELL = re.compile(rf"%([0-9A-Fa-f]{{2}})|[^{re.escape(_PLAIN)}/?*]")


class _Rule(NamedTuple):
    allow: bool
    size: int  # octets of the normalised pattern, wildcards and anchor included
    head: str  # of the pattern, up to the first "*"
    tail: tuple[str, ...]  # what follows each "*"
    anchored: bool  # it ends with "$"
    number: int  # of the line, from 1
    line: bytes
    usage: str = ""  # of an opt-out: whether it is a "content-usage" or a "content-signal"
    opt_outs: frozenset[str] = frozenset()

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches a normalised path that begins with its head.

        Each part is matched at the first place after the part before it, which leaves the most room for the
        rest: there is no backtracking, whatever the pattern.
        """
        if not self.tail:
            return not self.anchored or path == self.head
        position = len(self.head)
        for part in self.tail[:-1]:
            position = path.find(part, position) + len(part)
            if position < len(part):
                return False
        last = self.tail[-1]
        return path.endswith(last, position) if self.anchored else path.find(last, position) >= 0


class _Rules:
    """Rules by their heads: of tens of thousands of rules, a path begins with the heads of a few.

    Of rules that say the same the first is kept.
    """

    def __init__(self, rules: Iterable[_Rule]) -> None:
        distinct: dict[_Rule, _Rule] = {}
        for rule in rules:
            distinct.setdefault(rule._replace(number=0, line=b""), rule)
        self._by_head: dict[str, list[_Rule]] = {}
        for rule in distinct.values():
            self._by_head.setdefault(rule.head, []).append(rule)
        self._wildcards = {head: sum(len(rule.tail) for rule in alike) for head, alike in self._by_head.items()}
        self._lengths = sorted({len(head) for head in self._by_head})

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def wildcards(self, path: str) -> int:
        """Return how many wildcards there are in the rules whose heads a normalised path begins with."""
        return sum(self._wildcards[head] for head in self._heads(path))

    def matching(self, path: str) -> Iterator[_Rule]:
        """Yield the rules whose pattern matches a normalised path."""
        candidates = (rule for head in self._heads(path) for rule in self._by_head[head])
        return (rule for rule in candidates if rule.matches(path))

    def _heads(self, path: str) -> Iterator[str]:
        for length in self._lengths:
            if length > len(path):
                return
            if (head := path[:length]) in self._by_head:
                yield head


@dataclass(slots=True)
class _Group:
    rules: list[_Rule] = field(default_factory=list)
    usages: list[_Rule] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)


class Rules:
    """What a robots.txt says to us: the group of our product token, else that of `*`, else nothing.

    `delay` is the time in seconds between two requests that the group asks for, the longest of its
    `Crawl-delay` and `Request-rate` lines, None when it has neither. (RFC 9309 knows neither; they are said to
    the agents named above them.)

    Opt-outs are the Content-Usage rules of draft-ietf-aipref-attach and the Content-Signal lines of
    contentsignals.org (Cloudflare, 2025): `Content-Signal: ai-train=no`, or `Content-Usage: /photos/ train-ai=n`
    for some paths.
    """

    def __init__(self, group: _Group) -> None:
        self.delay = max(group.delays, default=None)
        self._rules = _Rules(group.rules)
        self._usages = _Rules(group.usages)

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing to us: everything is allowed, at any rate."""
        return not self._rules and not self._usages and self.delay is None

    def work(self, url: str) -> int:
        """Return how much work it is to judge a URL, at most, in steps of some 3 ns.

        Each wildcard of a rule that may match searches the rest of the path, and takes as long as 100 characters
        of it even if that is short.
        """
        path = _path(url)
        return (self._rules.wildcards(path) + self._usages.wildcards(path)) * (100 + len(path))

    @classmethod
    def parse(cls, body: bytes) -> Rules:
        """Read a robots.txt, whatever its bytes are; lines that make no sense are passed over (RFC 9309 2.2).

        Of a body over `MAX_BYTES` the line cut off there is dropped: what is left of it could say far more
        than the site meant (`Disallow: /` of `Disallow: /private`). So hand over one byte more than is read.
        """
        # Bytes split at CR, LF and CRLF alone, as 2.2 has it; a str would at U+0085 and others, too.
        lines = body[:MAX_BYTES].removeprefix(b"\xef\xbb\xbf").splitlines()
        if len(body) > MAX_BYTES and not {body[MAX_BYTES - 1], body[MAX_BYTES]} & set(b"\r\n"):
            lines.pop()
        groups: dict[str, _Group] = {}
        present: dict[str, _Group] = {}  # of `groups`, those that the lines now read belong to
        in_rules = False
        for number, line in enumerate(lines, 1):
            match = _LINE.fullmatch(line.partition(b"#")[0].strip())
            if not match:
                continue
            value = match["value"]
            if match["agent"]:
                if in_rules:
                    present, in_rules = {}, False
                agent = _agent(value)
                if agent in _OURS:
                    present[agent] = groups.setdefault(agent, _Group())
                continue
            if match["delay"] or match["rate"]:
                delay = _crawl_delay(value) if match["delay"] else _request_rate(value)
                for group in present.values():
                    group.delays += [] if delay is None else [delay]
                continue
            in_rules = True
            if match["usage"]:
                usage = _usage(match["usage"].decode().lower(), value, number, line.strip()) if present else None
                for group in present.values():
                    group.usages += [] if usage is None else [usage]
                continue
            if present and value:
                rule = _rule(bool(match["allow"]), value, number, line.strip())
                for group in present.values():
                    group.rules.append(rule)
        return cls(groups.get(TOKEN) or groups.get("*") or _Group())

    def decide(self, url: str) -> tuple[bool, tuple[int, str] | None]:
        """Return whether the URL may be fetched (RFC 9309 2.2.2); `/robots.txt` itself always may.

        And the number, from 1, and the text of the line that decides: of the longest rule that matches path and
        query; of equally long ones Allow, then the first; None if no rule does. No URL is too odd for an answer.
        """
        path = _path(url)
        if path.partition("?")[0] == "/robots.txt":
            return True, None
        matching = self._rules.matching(path)
        rule = max(matching, key=lambda rule: (rule.size, rule.allow, -rule.number), default=None)
        return (True, None) if rule is None else (rule.allow, (rule.number, rule.line.decode(errors="replace")))

    def opt_outs(self, url: str) -> dict[str, tuple[int, str]]:
        """Return which of `OPT_OUTS` the lines for a URL declare, each with the number and text of its line.

        Of the lines of one name those with the longest path that matches count. Of equally long ones each does:
        an opt-out stands, whatever another line allows (draft-ietf-aipref-attach).
        """
        if not self._usages:
            return {}
        matching = sorted(self._usages.matching(_path(url)), key=lambda rule: rule.number)
        longest: dict[str, int] = {}
        for rule in matching:
            longest[rule.usage] = max(longest.get(rule.usage, 0), rule.size)
        found: dict[str, tuple[int, str]] = {}
        for rule in matching:
            if rule.size == longest[rule.usage]:
                for name in rule.opt_outs:
                    found.setdefault(name, (rule.number, rule.line.decode(errors="replace")))
        return dict(sorted(found.items()))


class Verdict(NamedTuple):
    """Whether a URL may be fetched, and why not.

    `retry_in` (seconds) is set when that is unknown because the robots.txt could not be fetched. `opt_outs` are
    those that the robots.txt declares for a URL that may be fetched, with the line of each. `line` is the one that
    decides, with its number; None: no line does.
    """

    allowed: bool
    reason: str = ""
    retry_in: float | None = None
    opt_outs: Mapping[str, str] = MappingProxyType({})
    line: tuple[int, str] | None = None


def judge(rules: Rules, url: str) -> Verdict:
    """Return the verdict on a URL, within 4 ms."""
    if rules.work(url) > _MOST_WORK:
        return Verdict(False, f"it has too many rules with wildcards to judge a URL of {len(url)} characters")
    allowed, line = rules.decide(url)
    if not allowed:
        return Verdict(False, quoted(line) if line else "", line=line)
    declared = {name: quoted(one) for name, one in rules.opt_outs(url).items()}
    return Verdict(allowed=True, opt_outs=declared, line=line)


def refusal_for_opt_outs(declared: Mapping[str, str], config: Config) -> str | None:
    """Return why a picture must not be kept with these opt-outs (and the line of each); None if it may be."""
    refused = [f"{name} ({line})" for name, line in declared.items() if name in config.opt_outs]
    return ", ".join(refused) or None


def quoted(line: tuple[int, str]) -> str:
    """Return a line of a robots.txt, given with its number, for people to read."""
    return f"line {line[0]}, {printable(line[1])}"


def freshness(cache_control: bytes | None, *, longest: float = 86400.0, shortest: float = 60.0) -> float:
    """Return the seconds that a copy of a robots.txt may be used (RFC 9309 2.4).

    They are the max-age of its `Cache-Control` (RFC 9111 5.2.2.1), `longest` where it has none or nonsense, and
    within the bounds; `no-store` and `no-cache` mean `shortest`, for a copy is needed to crawl at all.
    """
    seconds = longest
    for match in _DIRECTIVE.finditer(cache_control or b""):
        name, value = match[1].lower(), (match[2] or b"").strip(b'"')
        if name in {b"no-store", b"no-cache"}:
            return shortest
        if name == b"max-age" and value.isdigit():
            seconds = min(seconds, float(value))
    return max(seconds, shortest)


@lru_cache(RECENT)
def robots_url(url: str) -> str:
    """Return the URL of the robots.txt that speaks for a URL: same scheme, host and port (RFC 9309 2.3).

    It is spelled one way for all URLs of a site: in lower case, without credentials and default port.

    Raises:
        ValueError: the URL has no scheme, no host, or a port that is none.

    """
    return _robots_url(origin_of(url))


@lru_cache(RECENT)
def _robots_url(url: str) -> str:
    parts = urlsplit(url)
    host, port = host_of_url(url), parts.port
    if not parts.scheme or not host:
        raise ValueError(f"{url!r:.200} has no scheme or no host")
    if ":" in host:
        host = f"[{host}]"
    suffix = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{host}{suffix}/robots.txt"


def _agent(value: bytes) -> str:
    match = _AGENT.match(value)
    return match[0].decode().lower() if match else ""


def _crawl_delay(value: bytes) -> float | None:
    seconds = float(value) if _DELAY.fullmatch(value) else math.inf
    return seconds if math.isfinite(seconds) else None


def _request_rate(value: bytes) -> float | None:
    match = _RATE.fullmatch(value)
    if not match:
        return None
    requests, seconds = int(match[1]), int(match[2]) * _SECONDS[(match[3] or b"").lower()]
    return seconds / requests if requests and seconds else None


@lru_cache(64)  # of a URL that is being judged
def _path(url: str) -> str:
    match = _PATH.match(url)
    reference = match[1] if match else ""
    if not reference.startswith("/"):
        reference = "/" + reference
    # A "*" in a URL is not a wildcard: RFC 9309 2.2.3.
    return _normalised(reference.encode(errors="surrogatepass").replace(b"*", b"%2A"))


def _rule(allow: bool, value: bytes, number: int, line: bytes) -> _Rule:
    anchored = value.endswith(b"$")
    pattern = _normalised(value.removesuffix(b"$"))
    head, *tail = pattern.split("*")
    return _Rule(allow, len(pattern) + anchored, head, tuple(tail), anchored, number, line)


def _usage(name: str, value: bytes, number: int, line: bytes) -> _Rule | None:
    """Return a Content-Usage or Content-Signal line; without a path it is for all. None if it says nothing."""
    path, said = b"/", value
    if value[:1] in {b"/", b"*"}:
        path, _, said = value.replace(b"\t", b" ").partition(b" ")
    if not said.strip():
        return None
    rule = _rule(False, path, number, line)
    return rule._replace(usage=name, opt_outs=frozenset(denied(name, said) & OPT_OUTS.keys()))


def _normalised(reference: bytes) -> str:
    """Return a path with its query in the spelling in which equal octets compare equal (RFC 9309 2.2.2).

    An encoded slash or question mark in the path is not a delimiter and stays encoded; in the query both are
    data, encoded or not (figure 4). An encoded asterisk is not a wildcard and stays encoded everywhere.
    """
    path, mark, query = reference.decode("latin-1").partition("?")
    return _spelled(path, _PLAIN) + mark + _spelled(query, _PLAIN + "/?")


def _spelled(text: str, plain: str) -> str:
    def spell(match: re.Match[str]) -> str:
        octet = chr(int(match[1], 16)) if match[1] else match[0]
        return octet if octet in plain else f"%{ord(octet):02X}"

    return _TO_SPELL.sub(spell, text)


def opt_outs(
    headers: Mapping[bytes, Iterable[bytes]] | Mapping[str, Iterable[str]], now: datetime
) -> tuple[str, ...]:
    """Return which of `OPT_OUTS` the headers of a response declare for us, sorted.

    X-Robots-Tag is read as Google documents it ("Robots meta tag, data-nosnippet, and X-Robots-Tag
    specifications"): `botname:` limits the rules after it in the same header to that bot, rules before any name
    are for all bots, and both apply together. `none` means `noindex`, and so does an `unavailable_after` before
    `now`. `noai` and `noimageai` are DeviantArt's (2022). Content-Usage is that of draft-ietf-aipref-attach with
    the labels of draft-ietf-aipref-vocab, -01 to -08; Content-Signal that of contentsignals.org (Cloudflare,
    2025); tdm-reservation that of the TDM Reservation Protocol (W3C community group report, 2024).

    The two dictionaries are read more leniently than RFC 9651 demands: a "no" still counts in a header that is
    malformed elsewhere, or if another member contradicts it. Nothing raises, whatever the headers contain.
    """
    found: set[str] = set()
    for name, values in headers.items():
        header = _text(name)
        for value in values:
            match header:
                case "x-robots-tag":
                    found.update(robots_rules(_text(value), now))
                case "content-usage" | "content-signal":
                    found.update(denied(header, value))
                case "tdm-reservation" if _text(value).strip() == "1":
                    found.add(header)
    return tuple(sorted(found & OPT_OUTS.keys()))


def denied(name: str, value: bytes | str) -> set[str]:
    """Return what a Content-Usage or Content-Signal says no to, as named in `OPT_OUTS`; unknown keys too.

    `name` is which of the two it is, in lower case.
    """
    return {f"{name}:{key}" for key in _denied(_text(value))}


def _text(value: bytes | str) -> str:
    return (value.decode("latin-1") if isinstance(value, bytes) else value).lower()


def robots_rules(value: str, now: datetime) -> Iterator[str]:
    """Yield the rules of an X-Robots-Tag in lower case that apply to us, known or not; so of a robots meta tag.

    `none` yields `noindex` and `nofollow`, an `unavailable_after` before `now` `noindex`.
    """
    ours = True
    parts = iter(value.split(","))
    for part in parts:
        name, colon, rest = part.partition(":")
        if colon and len(name.split()) == 1 and not name.strip().startswith(_WITH_VALUE):
            ours = name.strip().partition("/")[0] in _OURS
            name, _, rest = rest.partition(":")
        name = name.strip()
        if name == "unavailable_after" and _WEEKDAY.fullmatch(rest):
            rest += "," + next(parts, "")  # the comma belongs to the date (RFC 822, RFC 850)
        if ours:
            if name == "none":
                yield "nofollow"
            gone = name == "none" or (name == "unavailable_after" and _is_past(rest, now))
            yield "noindex" if gone else name


def _is_past(date: str, now: datetime) -> bool:
    """Tell whether `date` (in RFC 822, RFC 850 or ISO 8601 format) is past; False if it is not a date."""
    text = date.strip().upper()
    for parse in (datetime.fromisoformat, parsedate_to_datetime) if len(text) <= _LONGEST_DATE else ():
        try:
            then = parse(text)
        except (ValueError, OverflowError):
            continue
        return (then if then.tzinfo is not None else then.replace(tzinfo=UTC)) <= now
    return False


def _denied(value: str) -> Iterator[str]:
    """Yield the keys of a dictionary (`train-ai=n, search=y`) whose value means no; parameters are ignored."""
    for member in value.split(","):
        key, _, answer = member.partition(";")[0].partition("=")
        if answer.strip() in {"n", "no"}:
            yield key.strip()
