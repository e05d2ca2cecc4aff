"""The text of a Lua script: what its header declares that it needs, and then its own."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from crawlproject.state.keys import Keys

_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|.*?^end\n)", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^local ([A-Z][A-Z_]*) = (\d+)(?: --[^\n]*)?\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--[^\n]*\n", re.MULTILINE)
_NAME = re.compile(r"\b(?<!K\.)\w+")
_KEY = re.compile(r"\bK\.(\w+)")
_ARGUMENT = re.compile(r"\bA\.(\w+)")
_LUA = resources.files(__package__) / "lua"


class _Part(NamedTuple):
    """The text of one Lua file."""

    text: str

    def declared(self, word: str) -> list[str]:
        """Return what the header declares by `word`, over all of its lines."""
        lines = re.findall(rf"^-- {word}: (.*)$", self.text, re.MULTILINE)
        return [item for line in lines for item in line.split(", ")]

    @property
    def types(self) -> dict[str, str]:
        """Names of keys, and the type that each must have."""
        kinds = [item.split() for item in self.declared("types")]
        return {name: kind for kind, *names in kinds for name in names}

    @property
    def reads(self) -> set[str]:
        """Names of keys whose type the file itself checks, by reading them."""
        return {name for item in self.declared("reads") for name in item.split()}


@cache
def _parts(verb: str) -> tuple[_Part, ...]:
    """Return the preludes of a script, each once and after those that it needs itself, then the script."""
    found: dict[str, _Part] = {}

    def add(path: str) -> None:
        if path not in found:
            part = _Part((_LUA / path).read_text())
            for prelude in part.declared("needs"):
                add(f"preludes/{prelude}.lua")
            found[path] = part

    add("preludes/types.lua")
    add(f"{verb}.lua")
    return tuple(found.values())


def _without_unused(text: str) -> str:
    """Leave out the functions that nothing after them names: each costs time at every call."""
    kept, end = [], len(text)
    named: set[str] = set()  # in what is kept
    for found in reversed(list(_FUNCTION.finditer(text))):
        after = text[found.end() : end]
        named.update(_NAME.findall(after))
        kept.append(after)
        if found[1] in named:
            named.update(_NAME.findall(found[0]))
            kept.append(found[0])
        end = found.start()
    return text[:end] + "".join(reversed(kept))


def _with_constants_inserted(text: str) -> str:
    """Write the number in place of each constant: Lua has room for 200 local variables."""
    for found in list(_CONSTANT.finditer(text)):
        text = re.sub(rf"\b{found[1]}\b", found[2], text.replace(found[0], "", 1))
    return text


def _with_seldom_called_in_a_table(text: str, names: set[str]) -> str:
    """Make fields of a table of functions that are seldom called: it takes one local variable for all of them."""
    found = [name for name in names if re.search(rf"^local function {name}\(", text, re.MULTILINE)]
    if not found:
        return text
    any_of = "|".join(sorted(found))
    text = re.sub(rf"^local function ({any_of})\(", r"function SELDOM.\1(", text, flags=re.MULTILINE)
    return "local SELDOM = {}\n" + re.sub(rf"(?<![\w.])({any_of})\(", r"SELDOM.\1(", text)


class _Body(NamedTuple):
    """A script without what depends on the names of the keys."""

    text: str
    keys: frozenset[str]
    arguments: frozenset[str]


@cache  # most of a worker's start, else
def _body(verb: str) -> _Body:
    parts = _parts(verb)
    types_prelude, *others = (_COMMENT.sub("", part.text) for part in parts)
    text = _without_unused(_with_constants_inserted("\n".join(others)))
    text = _without_unused("\n".join((types_prelude, *_checks(parts, set(_KEY.findall(text))), text)))
    arguments = frozenset(_ARGUMENT.findall(text))
    text = _with_seldom_called_in_a_table(text, {name for part in parts for name in part.declared("seldom")})
    return _Body(text, frozenset(_KEY.findall(text)), arguments)


def _checks(parts: tuple[_Part, ...], named: set[str]) -> list[str]:
    read = set().union(*(part.reads for part in parts))
    types = {name: kind for part in parts for name, kind in part.types.items() if name in named - read}
    by_kind: dict[str, list[str]] = {}
    for name, kind in types.items():
        by_kind.setdefault(kind, []).append(f"K.{name}")
    checks = []
    for kind, names in by_kind.items():
        if kind in {"set", "stream"} and len(names) > 1:
            checks.append(f"require_{kind}s({', '.join(names)})")
        elif kind == "counter":
            checks += [f"require_counter({name})" for name in names]
        else:
            checks += [f"require_type('{kind}', {name})" for name in names]
    return checks


class ScriptText:
    """A script as Redis gets it: `text`, the `keys` to call it with, and the names of its `arguments`.

    Lua files declare in lines of their headers what stands before them:

    - `needs:` preludes, separated by commas, which may declare the same. Functions of theirs that the script does
      not use are left out.
    - `types:` keys that sources share, each with its type, as in `zset slots active, hash rates`: one of another
      type ends the script before anything else happens. A `counter` is a string with a whole number. Those that
      the script does not name in the end are not looked at.
    - `seldom:` functions that are seldom called, which take none of the 200 local variables that Lua has room for.
    - `reads:` keys for which the file does that itself, when it reads them; whatever its preludes declare.

    Keys have their names from keys.py, as `K.name`; arguments are one msgpack map, `A`. A constant, `local NAME =
    number`, is inserted where it is named.
    """

    def __init__(self, verb: str, keys: Keys) -> None:
        body = _body(verb)
        self.arguments = body.arguments
        spelled = {name: key for name, key in keys.items() if name in body.keys}
        self.keys = list(spelled.values())
        places = ", ".join(f"{name} = KEYS[{number}]" for number, name in enumerate(spelled, 1))
        self.text = "\n".join(
            (
                "redis.replicate_commands()",  # TIME before writes; the default from Redis 5 on
                f"local K = {{{places}}}",
                "local A = cmsgpack.unpack(ARGV[1])",
                body.text,
            )
        )
