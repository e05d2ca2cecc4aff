"""robots.txt (RFC 9309): what a site lets us fetch, how often, and how long its word holds."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes, urlsplit

from protego import Protego

TOKEN = "crawlproject"  # our product token, RFC 9309 2.2.1
MAX_BYTES = 500 * 1024  # of a robots.txt that are read, RFC 9309 2.5

_DEFAULT_PORTS = {"http": 80, "https": 443}

# The names that Protego and Google's parser know, misspellings included: who writes them means them.
_LINE = re.compile(
    rb"(?:(?P<agent>user[- ]?agent)|(?P<allow>allow)|(?P<delay>crawl[- ]delay)|(?P<rate>request[- ]rate)"
    rb"|(?P<disallow>disallow|dissallow|dissalow|disalow|diasllow|disallaw))(?:\s*:|\s|$)\s*(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_AGENT = re.compile(rb"\*(?=\s|$)|[A-Za-z_-]*")
_DELAY = re.compile(rb"\d+(?:\.\d*)?|\.\d+")
_RATE = re.compile(rb"(\d{1,9})\s*/\s*(\d{1,9})\s*([smhd]?)(?:\s+\d.*)?", re.IGNORECASE | re.DOTALL)
_SECONDS = {b"": 1, b"s": 1, b"m": 60, b"h": 3600, b"d": 86400}
_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?([^#]*)", re.DOTALL)  # RFC 3986, appendix B
_DIRECTIVE = re.compile(rb'([^\s,="]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?')

# How an octet is spelled for Protego. It undoes percent-encoding as UTF-8 text, which makes all that is none
# the same; it reads "$" at the end of a pattern as a plain one, too, and "Allow: /index.html" as "Allow: /$".
# So whatever it would touch is escaped by letters that are no hex digits (three characters for one octet, as
# in percent-encoding, so that the longest match stays the longest), and "l" and "?", which count as one, take
# the two characters that this leaves free.
_SPELLING = {
    octet: chr(octet)
    if re.fullmatch(r"[A-Za-z0-9_./-]", chr(octet))
    else "%" + "ghijklmnopqrstuv"[octet >> 4] + "ghijklmnopqrstuv"[octet & 15]
    for octet in range(256)
} | {ord("l"): "=", ord("?"): "~"}

# What keeps its meaning when percent-encoding is undone: the wildcard, and in a path the two delimiters, which
# are not their encoded forms. In a query those are plain data: encoded or not is the same (RFC 9309, figure 4).
_KEPT_IN_PATH = re.compile(rb"(\*|%2[Ff]|%3[Ff])")
_KEPT_IN_QUERY = re.compile(rb"(\*)")


@dataclass(frozen=True, slots=True)
class _Rule:
    allow: bool
    pattern: str  # as spelled for Protego
    line: int
    text: str


@dataclass(slots=True)
class _Group:
    rules: list[_Rule] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)


class Rules:
    """What a robots.txt says to us: the group of our product token, else that of `*`, else nothing.

    `delay` is the time in seconds between two requests that the group asks for, the longest of its
    `Crawl-delay` and `Request-rate` lines, None when it has neither. (RFC 9309 knows neither; they are said to
    the agents named above them.)

    Protego matches the patterns. It gets our group alone, spelled so that it departs from RFC 9309 nowhere.
    """

    def __init__(self, group: _Group) -> None:
        self.delay = max(group.delays, default=None)
        self._rules = sorted(group.rules, key=lambda rule: -len(rule.pattern))
        self._matcher = _matcher((rule.allow, rule.pattern) for rule in self._rules)

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
                if agent in {TOKEN, "*"}:
                    present[agent] = groups.setdefault(agent, _Group())
                continue
            if match["delay"] or match["rate"]:
                delay = _crawl_delay(value) if match["delay"] else _request_rate(value)
                for group in present.values():
                    group.delays += [] if delay is None else [delay]
                continue
            in_rules = True
            if present:
                text = line.strip().decode(errors="replace")
                rule = _Rule(bool(match["allow"]), _pattern(value), number, text)
                for group in present.values():
                    group.rules.append(rule)
        return cls(groups.get(TOKEN) or groups.get("*") or _Group())

    def allows(self, url: str) -> bool:
        """Return whether the URL may be fetched (RFC 9309 2.2.2); `/robots.txt` itself always may.

        Path and query are compared. No URL is too odd for an answer.
        """
        path = _path(url)
        return _is_robots_txt(path) or _can_fetch(self._matcher, path)

    def rule_for(self, url: str) -> tuple[int, str] | None:
        """Return the number, from 1, and the text of the line that decides about the URL; None if no rule does.

        It is for people who ask why: it takes far longer than `allows`.
        """
        path = _path(url)
        if _is_robots_txt(path):
            return None
        verdict = _can_fetch(self._matcher, path)
        rules = [rule for rule in self._rules if rule.allow is verdict]
        if not _match_any(rules, path):
            return None
        # Protego does not tell the rule: the first that matches, the longest, is found by halves.
        while len(rules) > 1:
            half = len(rules) // 2
            rules = rules[:half] if _match_any(rules[:half], path) else rules[half:]
        return rules[0].line, rules[0].text


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


def robots_url(url: str) -> str:
    """Return the URL of the robots.txt that speaks for a URL: same scheme, host and port (RFC 9309 2.3).

    It is spelled one way for all URLs of a site: in lower case, without credentials and default port.

    Raises:
        ValueError: the URL has no scheme, no host, or a port that is none.

    """
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
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
    requests, seconds = int(match[1]), int(match[2]) * _SECONDS[match[3].lower()]
    return seconds / requests if requests and seconds else None


def _path(url: str) -> str:
    match = _PATH.match(url)
    reference = match[1] if match else ""
    if not reference.startswith("/"):
        reference = "/" + reference
    # No "*" of a URL is a wildcard: RFC 9309 2.2.3.
    return _spell(reference.encode(errors="surrogatepass").replace(b"*", b"%2A"))


def _pattern(value: bytes) -> str:
    anchored = value.endswith(b"$")
    return _spell(value.removesuffix(b"$")) + "$" * anchored


def _spell(reference: bytes) -> str:
    path, mark, query = reference.partition(b"?")
    return _spell_but(_KEPT_IN_PATH, path) + _spell_but(_KEPT_IN_QUERY, mark + query)


def _spell_but(kept: re.Pattern[bytes], octets: bytes) -> str:
    return "".join(
        part.decode() if is_kept else unquote_to_bytes(part).decode("latin-1").translate(_SPELLING)
        for part, is_kept in zip(kept.split(octets), itertools.cycle((False, True)), strict=False)
    )


def _matcher(rules: Iterable[tuple[bool, str]]) -> Protego:
    lines = (f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in rules)
    return Protego.parse("\n".join((f"User-agent: {TOKEN}", *lines)))


def _can_fetch(matcher: Protego, path: str) -> bool:
    return matcher.can_fetch("http://host" + path, TOKEN)  # a path of its own may look like "//host"


def _match_any(rules: list[_Rule], path: str) -> bool:
    return not _can_fetch(_matcher((False, rule.pattern) for rule in rules), path)


def _is_robots_txt(path: str) -> bool:
    return path.partition(_SPELLING[ord("?")])[0] == "/robots.txt"
