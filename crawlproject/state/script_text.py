"""The text of a Lua script: what its header declares that it needs, and then its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

from crawlproject.state.keys import Keys

_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|.*?^end\n)", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^local ([A-Z][A-Z_]*) = (\d+)(?: --[^\n]*)?\n", re.MULTILINE)
_WORD = re.compile(r"\b[A-Z][A-Z_]*\b")  # that may be such a constant
_VARIABLES = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_COMMENT = re.compile(r"^ *--[^\n]*\n", re.MULTILINE)
_NAME = re.compile(r"\b(?<!K\.)\w+")
_KEY = re.compile(r"\bK\.(\w+)")
_ARGUMENT = re.compile(r"\bA\.(\w+)")
_OUTER = 60  # variables: so many of enclosing functions' Lua lets a function use
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
        return self._kinds("types")

    @property
    def few(self) -> dict[str, str]:
        """The same for keys of which few are there, as a rule."""
        return self._kinds("few")

    def _kinds(self, word: str) -> dict[str, str]:
        items = [item.split() for item in self.declared(word)]
        return {name: kind for kind, *names in items for name in names}

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
    numbers = dict(_CONSTANT.findall(text))
    return _WORD.sub(lambda word: numbers.get(word[0], word[0]), _CONSTANT.sub("", text))


def _in_two_scopes(text: str) -> str:
    """Put what comes after the first `_OUTER` variables into a function of its own.

    When Lua 5.1 makes a function, it looks for each variable that this uses in a list of all that are in use,
    unless it belongs to an enclosing function: with all in one scope that takes an eighth of a small call. And it
    has room for 200 variables in each scope.
    """
    count = 2  # `K` and `A` stand before
    for found in _VARIABLES.finditer(text):
        count += found[1].count(",") + 1
        if count > _OUTER:
            return f"{text[: found.start()]}return (function()\n{text[found.start() :]}\nend)()"
    return text


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
    return _Body(_in_two_scopes(text), frozenset(_KEY.findall(text)), arguments)


def _checks(parts: tuple[_Part, ...], named: set[str]) -> list[str]:
    wanted = named - set().union(*(part.reads for part in parts))

    def by_kind(declared: Iterable[dict[str, str]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, kind in {name: kind for kinds in declared for name, kind in kinds.items()}.items():
            if name in wanted:
                found.setdefault(kind, []).append(f"K.{name}")
        return found

    checks = []
    for kind, names in by_kind(part.few for part in parts).items():
        checks.append(f"require_few('{kind}', {', '.join(names)})")
    for kind, names in by_kind(part.types for part in parts).items():
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
    - `few:` the same for keys of which few are there, as a rule, those that most often are first.
    - `reads:` keys for which the file does that itself, when it reads them; whatever its preludes declare.

    All keys that the text names are passed, prefixes too. These are never there themselves: so a node of a Redis
    Cluster refuses the call as a whole while the slot is moved, and nothing is done by halves.

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
