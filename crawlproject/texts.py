"""Untrusted texts: URLs, header values, error texts. Made safe to log and to show."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

from crawlproject import program

LONGEST_URL = 8_192  # characters, of a seed or of a redirect's target

# Whatever stands between // and an @, up to the path. Where a colon is not followed by a port, a password may
# contain a slash: then everything up to the last @.
_USERINFO = re.compile(
    r"""((?:\\?/){2})(?:[^/?\#\s"]*|(?!\[|[^/?\#@\s":]*:\d{0,5}(?:[/?\#]|$))[^/?\#@\s":]*:[^\s"]*)@"""
)

_ENDS = re.compile(r'([\s"])')  # of a URL within a text

compact_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

# Allowed in JSON as they are, but terminals and editors take them for line ends or control sequences.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, longest: int = 200) -> str:
    """Return an untrusted text for logs and reasons: cut to `longest` characters, without control characters."""
    text = text[:longest]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def visible(text: str) -> str:
    """Return a text of any length with `?` for characters that a terminal obeys; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def counted(number: int, what: str) -> str:
    """Return a number of things, as in `1 seed` and `2 seeds`; `what` is the singular."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def grouped(value: float) -> str:
    """Return a number for people: digits in groups of three, or the three that matter of a small fraction."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def missing(what: str, package: str, error: ImportError, extra: str) -> str:
    """Return what to tell an operator where a package of an extra cannot be imported, and `what` needs it."""
    return f"{what} needs {package} ({error}): pip install 'crawlproject[{extra}]'"


def scrapy_command(*words: str, spider: str = "images", of: Iterable[str] = ()) -> str:
    """Return a command for people to copy into a shell: the program, `words`, and `of`, what it is done to.

    It names the `spider`, unless that is the one that commands are about by default.

    A shell takes each of them as one word and as nothing else, whoever has chosen it: it does not run `$(...)`,
    and what begins with `-` in `of` stands behind `--`: it is no option. It belongs at the end of a line: what
    follows is copied, too.
    """
    line = [*program.name().split(), *words]
    if spider != "images":
        line.append(f"--spider={spider}")
    names = list(of)
    line += ["--", *names] if any(name.startswith("-") for name in names) else names
    return " ".join(shlex.quote(printable(word, len(word))) for word in line)


def without_userinfo(text: str) -> str:
    """Return `text` with `***` in place of the user names and passwords of all URLs in it."""
    if "@" not in text:
        return text
    # Part by part, and in each only up to its last @: so the time is linear in the length, whatever the text is.
    parts = _ENDS.split(text)
    for index, part in enumerate(parts):
        last = part.rfind("@") + 1
        if last:
            parts[index] = _USERINFO.sub(r"\1***@", part[:last]) + part[last:]
    return "".join(parts)


# What a secret is called: a name with one of these words in it, or one of the short words by itself.
_SECRETIVE = (
    r"(?i:(?:secret|passw(?:or)?d|passphrase|passcode|requirepass|token|credential|signature|sess(?:ion)?[_-]?id"
    r"|(?:api|private|account|encryption|signing|master|shared)[_.-]?key|access[_.-]?key(?![_.-]?id))[\w.-]{0,40}"
    r"|(?<![A-Za-z0-9])(?:pwd|pass|sig|hmac|auth|authorization|jwt|sid|session|cookie|psk|sas)(?![A-Za-z0-9]))"
)
_WORDS = (
    *("secret", "pass", "token", "cred", "sig", "sess", "key", "pwd"),
    *("mac", "auth", "jwt", "sid", "cookie", "psk", "sas"),
)
_QUOTED = r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\\+".{0,4000}?\\{1,15}"|\\+'.{0,4000}?\\{1,15}'"""
_BARE = r"""[^\s&'",;<>})\]\\]+"""

# The shapes that secrets have in logs: lower-case words of which each has one, the shape, and what is left of it.
# All of them take time linear in the length.
_SHAPES = [
    (words, re.compile(shape), left)
    for words, shape, left in (
        (("private key",), r"(?s)(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:(?!-----).){1,10000}", r"\1***"),
        # Headers, whose values have spaces: up to the end of the line or of the string that they stand in
        (("authorization", "cookie"),
         r"(?i)((?<![A-Za-z0-9])(?:(?:proxy-)?authorization|(?:set-)?cookie2?):\s*)[^\r\n'\"\\]+", r"\1***"),
        (("digest",), r"(?i)\b(digest\s+username=)[^\r\n]+", r"\1***"),
        (("bearer",), r"(?i)\b(bearer\s+)(?!tokens?\b|auth|of\b)[\w.~+/-]+=*", r"\1***"),
        (("basic",),
         r"(?i)\b(basic\s+)(?:[A-Za-z0-9+/]{2,}={1,2}|(?=[A-Za-z+/]{0,100}\d)[A-Za-z0-9+/]{8,})", r"\1***"),
        # Name and value: in settings, environments, URLs, JSON (within JSON, too), Python's reprs, pairs, XML
        (_WORDS, rf"""(?x)({_SECRETIVE})(?:
            (\s?=\s?|\\*['"]\s*(?::|=>|=)\s*)(?:[\[(]?(?:{_QUOTED})|\w+\((?:{_QUOTED})\)|{_BARE})
            |(\\*['"]\s*,\s*)\[?(?:{_QUOTED})
            |((?:%22|%27)?%3[AaDd](?:%20|\+)?(?:%22|%27)?)[^\s&%'"]+
            |(:)(?:{_BARE})
            |(:\s+)(?:{_QUOTED}|(?=[^\s\d]{{0,200}}\d)(?=[^\sA-Za-z]{{0,200}}[A-Za-z]){_BARE})
            |(>)[^<>]+(?=</)
        )""", r"\1\2\3\4\5\6\7***"),
        # Parameters of URLs
        (("key=", "code=", "access=", "sign=", "policy=", "hdn", "x-amz-", "x-goog-"),
         r"(?i)([?&](?:key|code|access|sign|policy|hdnts|hdnea|x-(?:amz|goog)-[a-z-]{1,30})=)[^&#\s'\"<>]+",
         r"\1***"),
    )
]  # fmt: skip


def without_secrets(text: str) -> str:
    """Return `text` with `***` for passwords, keys and tokens, by the names beside them.

    For all that is logged. A secret without its name cannot be recognised.
    """
    text = without_userinfo(text)
    lower = text.lower()  # a search for words in it takes a hundredth of the time of a shape
    for words, shape, left in _SHAPES:
        if any(word in lower for word in words):
            text = shape.sub(left, text)
    return text


def shown_seed(text: str) -> str:
    """Return a line of the seed list for people to read: as it came, except for user names and passwords.

    They may hide in JSON escapes, or under a duplicate key: then it is shown as pairs of keys and values.
    """
    shown = without_userinfo(text)
    try:
        plain = json.dumps(json.loads(text, object_pairs_hook=list), ensure_ascii=False)
    except (ValueError, RecursionError):
        return shown
    masked = without_userinfo(plain)
    return masked if masked != plain and shown == text else shown


def one_line(data: Any) -> str:
    """Return `data` as JSON on one line, with no character that moves a cursor in any terminal or editor.

    Null stands for NaN and Infinity, which JSON does not have.
    """
    try:
        text = compact_json(data)
    except ValueError:
        return one_line(json.loads(json.dumps(data), parse_constant=lambda _: None))
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSEEN.sub(lambda char: f"\\u{ord(char[0]):04x}", text)
