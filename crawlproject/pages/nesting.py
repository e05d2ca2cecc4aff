"""How far a page can be parsed at a bounded cost.

Lexbor builds the tree as the HTML standard has it: most tags look through the open elements, and each block
opens all unclosed formatting elements again. So a hostile page costs the square of its size: 250 KB of
`<ul><li>` take five seconds, 28 KB of `<b>` and `<p>` 1.6 GB of memory. No option of Lexbor or selectolax
bounds that. So the number of open elements is estimated here, never too low, and a page is cut where the work
would exceed what honest HTML needs.
"""

from __future__ import annotations

import re

MAX_WORK = 16_000_000  # steps along open elements, 3 to 12 ns each
MAX_REOPENED = 150_000  # formatting elements that may be opened again, 0.3 µs and some 350 bytes each
MAX_ATTRIBUTES = 256  # of an element: each is compared with all before it

_FEW_TAGS = 3000  # with which even elements that are all open stay well below MAX_WORK
# Of a page that is quick to read. Addresses with queries take 70 µs each.
_QUICK_TAGS, _QUICK_REOPENED, _QUICK_QUERIES = 1000, 20_000, 150
_REACH = 16  # open elements that an end tag may close at once


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr"
)
# Closed by what follows, without an end tag of their own (HTML standard, "generate implied end tags").
_IMPLIED = _names("caption colgroup dd dt li optgroup option p rb rp rt rtc tbody td tfoot th thead tr")
_CLOSE_THEIR_LIKE = _names("a dd dt li option p tbody td th tr")
_BLOCKS = _names(
    "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer h1 "
    "h2 h3 h4 h5 h6 header hgroup li main menu nav ol p pre section summary table tbody td tfoot th thead tr ul"
)
# Opened again in the next block unless closed by an end tag ("reconstruct the active formatting elements"); and of
# links only one at a time.
_FORMATTING = _names("b big code em font i nobr s small strike strong tt u")
# Within these the same tags may mean something else.
_OTHER_RULES = _names("svg math select template frameset")
_SVG = _names(
    "animate animatetransform circle clippath defs ellipse filter g line lineargradient marker mask path pattern "
    "polygon polyline radialgradient rect stop svg symbol text title tspan use"
)
_ONCE = frozenset(("html", "body"))  # another start tag adds its attributes to the one element
_END_OF_RAW = {
    name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
_END_OF_COMMENT = re.compile("--!?>")

_SPACE = r"\t\n\f\r "
_VALUE = rf"[{_SPACE}]*+=[{_SPACE}]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^{_SPACE}>\"'][^{_SPACE}>]*+)?+"
_ATTRIBUTE = rf"[^{_SPACE}/>][^{_SPACE}/>=]*+(?:{_VALUE})?+"
# As the tokeniser of the standard has it. What is not closed reaches to the end: no character is looked at twice.
_TOKEN = re.compile(
    rf"<(?:(/?)([a-z][^{_SPACE}/>]*+)((?:[{_SPACE}/]++|{_ATTRIBUTE})*+)(?:>|\Z)|(!--)|(!\[CDATA\[)[^>]*+>?"
    r"|[!?/][^>]*+>?)",
    re.IGNORECASE | re.ASCII,
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(rf"<(/?)([a-z][^{_SPACE}/>]{{0,20}})", re.IGNORECASE | re.ASCII)
_STYLED = re.compile(
    rf"<({'|'.join(sorted(_FORMATTING))})(?=[{_SPACE}/>])([{_SPACE}/]*+[^{_SPACE}/>])?", re.IGNORECASE
)
# Without either no tag is longer than 2,000 characters: only in quotes there may be a ">".
_LONG_TAG = re.compile("</?[a-z][^>]{2000}", re.IGNORECASE | re.ASCII)
_QUOTED_END = re.compile(rf"=[{_SPACE}]*+(?:\"[^\">]*+>|'[^'>]*+>)")
_HAS_MANY = re.compile(rf"[^{_SPACE}/>]{{0,64}}+(?:[{_SPACE}/]*+{_ATTRIBUTE}){{{MAX_ATTRIBUTES}}}")


class _Open:
    """The elements that may be open: `names`, and `left` more; no fewer than Lexbor has open.

    An element that is closed together with one around it counts on, as some rules leave it open.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.formatting = 0  # of `names`
        self.left = 0
        self.unclosed = 0  # formatting elements that were closed so
        self.other_rules = 0  # of `names` and those left
        self.is_svg = False  # what is within the last svg is surely by its rules

    def start(self, name: str, is_empty: bool) -> None:
        if not self.other_rules:
            if name in _VOID:
                return
            if name in _CLOSE_THEIR_LIKE and self.names and self.names[-1] == name:
                return  # it closes the one before
        elif self.is_svg:
            self.is_svg = name in _SVG
            if self.is_svg and is_empty:
                return
        if name in _OTHER_RULES:
            self.is_svg = name == "svg" and not self.other_rules
            self.other_rules += 1
        self.names.append(name)
        self.formatting += name in _FORMATTING

    def end(self, name: str) -> None:
        names = self.names
        if names and names[-1] == name:
            names.pop()
            self.formatting -= name in _FORMATTING
            self.other_rules -= name in _OTHER_RULES
            return
        self.is_svg = False
        for index in range(len(names) - 1, max(-1, len(names) - 1 - _REACH), -1):
            if names[index] == name:
                break
        else:
            return
        between = names[index + 1 :]
        del names[index:]
        unclosed = sum(one in _FORMATTING for one in between)
        self.formatting -= unclosed
        self.unclosed += unclosed
        self.left += len(between)
        if not all(one in _FORMATTING or one == "a" or (one in _IMPLIED and name in _BLOCKS) for one in between):
            self.left += 1  # one of these may have kept it open
            return
        self.formatting -= name in _FORMATTING
        self.other_rules -= name in _OTHER_RULES


def parsable(text: str) -> int:
    """Return how many characters of a page, from its beginning, may be parsed."""
    if _is_harmless(text):
        return len(text)
    opened = _Open()
    work = reopened = position = once = 0
    while (token := _TOKEN.search(text, position)) is not None:
        slash, name, attributes, comment, cdata = token.groups()
        position = token.end()
        if name is None:
            if comment:
                position = _after_comment(text, token.start())
            elif cdata and opened.other_rules:  # it may be text, which ends elsewhere
                return _parsable_whatever_it_is(text, position, opened, work, reopened)
            continue
        name = name.lower()
        if len(attributes) > 2 * MAX_ATTRIBUTES or name in _ONCE:
            count = sum(1 for _ in _ATTRIBUTES.finditer(attributes))
            once += count if name in _ONCE else 0
            if max(count, once) > MAX_ATTRIBUTES:
                return token.start()
        if slash:
            opened.end(name)
        else:
            opened.start(name, attributes.endswith("/"))
            if (end_of_raw := _END_OF_RAW.get(name)) is not None:
                end = end_of_raw.search(text, position)
                until = len(text) if end is None else end.start()
                if not _is_raw(text[position:until], name, attributes, opened):
                    return _parsable_whatever_it_is(text, position, opened, work, reopened)
                position = until
        work += len(opened.names) + opened.left
        reopened += opened.formatting + opened.unclosed
        if work > MAX_WORK or reopened > MAX_REOPENED:
            return token.start()
    return len(text)


def _is_harmless(text: str) -> bool:
    """Tell whether the number of tags alone bounds the work, as that of most pages does."""
    if (tags := text.count("<")) > _FEW_TAGS or _LONG_TAG.search(text) or _QUOTED_END.search(text):
        return False
    return _reopened_at_most(text, tags) <= MAX_REOPENED


def _reopened_at_most(text: str, tags: int) -> int:
    """Return a bound of how many formatting elements are opened again: of equal ones no more than three."""
    plain: set[str] = set()
    others = 0
    for name, attribute in _STYLED.findall(text):
        if attribute:
            others += 1
        else:
            plain.add(name.lower())
    return (3 * len(plain) + others) * tags


def is_quick(body: bytes) -> bool:
    """Tell whether a page of some kilobytes takes few milliseconds, by what costs the most for its bytes."""
    tags = body.count(b"<")
    if tags > _QUICK_TAGS or body.count(b"?") > _QUICK_QUERIES:
        return False
    return _reopened_at_most(body.decode("latin-1"), tags) <= _QUICK_REOPENED


def _parsable_whatever_it_is(text: str, position: int, opened: _Open, work: int, reopened: int) -> int:
    """Go on where what looks like a comment, an end tag or a text may be none: each tag may open an element."""
    depth = len(opened.names) + opened.left
    formatting = opened.formatting + opened.unclosed
    for tag in _TAG.finditer(text, position):
        depth += not tag[1]
        formatting += not tag[1] and tag[2].lower() in _FORMATTING
        work += depth
        reopened += formatting
        if work > MAX_WORK or reopened > MAX_REOPENED:
            return tag.start()
        if not tag[1] and _HAS_MANY.match(text, tag.end()):
            return tag.start()
    return len(text)


def _after_comment(text: str, start: int) -> int:
    end = _END_OF_COMMENT.search(text, start + 2)
    if end is not None and end[0] == "--!>" and end.start() < start + 4:
        end = _END_OF_COMMENT.search(text, start + 4)
    return len(text) if end is None else end.end()


def _is_raw(content: str, name: str, attributes: str, opened: _Open) -> bool:
    """Tell whether an element surely has no markup up to its end tag, by whatever rules it is read."""
    if name == "script" and "<!--" in content and "<script" in content.lower():
        return False  # the end tag may be one of a script within
    if attributes.endswith("/") or "<" in content:
        return not opened.other_rules
    return True
