"""How far a page can be parsed at a bounded cost.

Lexbor builds the tree as the HTML standard has it: most tags look through the open elements, each block opens all
unclosed formatting elements again, and each attribute is compared with those before it. So a hostile page costs
the square of its size: 250 KB of `<ul><li>` take five seconds, 28 KB of `<b>` and `<p>` 1.6 GB of memory. No
option of Lexbor or selectolax bounds that. So a page is cut where it has more tags, unclosed formatting elements
or attributes than honest ones: too early rather than too late, as nothing here depends on how a tag is parsed.
"""

from __future__ import annotations

import re
from itertools import islice

MAX_TAGS = 10_000  # "<": with as many elements in each other a page takes a quarter of a second
MAX_REOPENED = 100_000  # formatting elements that may be opened again, 0.3 µs and some 350 bytes each
MAX_ATTRIBUTES = 1000  # of an element

_MOST_ROOTS = 8  # tags of html and body: each adds its attributes to those of the one element
_FEW_QUOTED = 4
_MOST_SCANNED = 2_000_000  # characters of tags, some in each other

_SPACE = r"\t\n\f\r "
# As the tokeniser of the standard has it
_VALUE = rf"[{_SPACE}]*+=[{_SPACE}]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^{_SPACE}>\"'][^{_SPACE}>]*+)?+"
_ATTRIBUTE = rf"[{_SPACE}/]*+[^{_SPACE}/>][^{_SPACE}/>=]*+(?:{_VALUE})?+"
_BEGUN = rf"<[a-z][^{_SPACE}/>]*+"
_TAG = re.compile(rf"{_BEGUN}(?:{_ATTRIBUTE}){{0,{MAX_ATTRIBUTES + 1}}}+", re.IGNORECASE | re.ASCII)
_OVERLOADED = re.compile(rf"{_BEGUN}(?:{_ATTRIBUTE}){{{MAX_ATTRIBUTES + 1}}}", re.IGNORECASE | re.ASCII)
_TAG_OPEN = re.compile("<")
_ROOT = re.compile(rf"<(?:html|body)(?=[{_SPACE}/>])", re.IGNORECASE)
# Only in quotes there may be a ">": without a long tag, and with a few quoted ends, none has 10,000 characters.
_LONG_TAG = re.compile("<[a-z][^>]{2000}", re.IGNORECASE | re.ASCII)
_QUOTED_END = re.compile(rf"=[{_SPACE}]*+(?:\"[^\">]*+>|'[^'>]*+>)")

# Opened again in the next block unless closed by an end tag ("reconstruct the active formatting elements"); and of
# links only one at a time.
_FORMATTING = "b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u"
_STYLED = re.compile(
    rf"<(?=[bcefinstu])({_FORMATTING})(?=[{_SPACE}/>])([{_SPACE}/]*+[^{_SPACE}/>])?", re.IGNORECASE
)
_STEP = re.compile(rf"<(?:({_FORMATTING})(?=[{_SPACE}/>])([{_SPACE}/]*+[^{_SPACE}/>])?)?", re.IGNORECASE)
# An element of text alone, which leaves open what was open before, wherever it stands
_PLAIN_ATTRIBUTES = rf"(?:[{_SPACE}]+[\w:.@-]+(?:=(?:\"[^\"<>]*\"|'[^'<>]*'|[^{_SPACE}\"'<>=`]+))?)*+[{_SPACE}]*+"
_CLOSED = re.compile(
    rf"<(?=[abcefiklnstu])({_FORMATTING}|a|abbr|cite|kbd|label|span|sub|sup|time){_PLAIN_ATTRIBUTES}>"
    rf"(?:[^<]|<(?:br|img|wbr){_PLAIN_ATTRIBUTES}/?>)*+</\1[{_SPACE}]*>",
    re.IGNORECASE | re.ASCII,
)
_LEVELS = 4  # of such elements in each other


def parsable(text: str) -> int:
    """Return how many characters of a page, from its beginning, may be parsed."""
    if text.count("<") > MAX_TAGS:
        text = text[: _nth(_TAG_OPEN, text, MAX_TAGS)]
    text = text[: _nth(_ROOT, text, _MOST_ROOTS)]
    if _LONG_TAG.search(text) or _nth(_QUOTED_END, text, _FEW_QUOTED) < len(text):
        text = text[: _before_many_attributes(text)]
    return _before_many_reopened(text)


def _nth(pattern: re.Pattern[str], text: str, number: int) -> int:
    """Return where the match after the first `number` ones begins, or the text ends."""
    found = next(islice(pattern.finditer(text), number, None), None)
    return len(text) if found is None else found.start()


def _before_many_attributes(text: str) -> int:
    scanned = position = 0
    while (position := text.find("<", position)) >= 0:
        if (tag := _TAG.match(text, position)) is not None:
            scanned += len(tag[0])
            is_long = len(tag[0]) > 2 * MAX_ATTRIBUTES
            if scanned > _MOST_SCANNED or (is_long and _OVERLOADED.match(text, position)):
                return position
        position += 1
    return len(text)


def _before_many_reopened(text: str) -> int:
    styled = _STYLED.findall(text)
    most = 1 + 3 * len({name for name, _ in styled}) + sum(1 for _, attribute in styled if attribute)
    if most * text.count("<") <= MAX_REOPENED:
        return len(text)
    for _ in range(_LEVELS):
        text, count = _CLOSED.subn(lambda found: " " * len(found[0]), text)
        if not count:
            break
    unclosed, reopened = 1, 0
    plain: dict[str, int] = {}
    for step in _STEP.finditer(text):
        reopened += unclosed
        if reopened > MAX_REOPENED:
            return step.start()
        if (name := step[1]) is not None:
            plain[name] = plain.get(name, 0) + (not step[2])
            unclosed += bool(step[2]) or plain[name] <= 3  # of equal ones no more than three are open
    return len(text)
