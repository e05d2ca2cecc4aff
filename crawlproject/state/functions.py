"""The library of Redis Functions in `lua/`: its text, and how one of them is called."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgpack
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from crawlproject.state.keys import Keys

_LUA = resources.files(__package__) / "lua"
_NOTHING = b"\x80"  # an empty map


class Library(NamedTuple):
    """A library: `name` ends in a digest of its text, so that two versions of crawlproject never meet in it."""

    name: str
    text: str


@cache
def crawl_library() -> Library:
    """Return the library of crawlproject."""
    return library_with("")


def library_with(more: str) -> Library:
    """Return the library: the modules, in the order of their names, the functions that are called, and `more`."""
    parts = [
        (folder, path.name, path.read_text())
        for folder in ("modules", "functions")
        for path in (_LUA / folder).iterdir()
        if path.name.endswith(".lua")
    ]
    texts = [text for _, _, text in sorted(parts, key=lambda part: (part[0] != "modules", part[1]))]
    text = "\n".join((*texts, more))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]
    name = f"crawl_{digest}"
    return Library(name, f"#!lua name={name}\n" + text.replace("@DIGEST@", digest))


def command(
    verb: str,
    keys: Keys,
    arguments: Mapping[str, Any],
    settings: bytes = _NOTHING,
    library: Library | None = None,
) -> tuple[Any, ...]:
    """Return the command that calls a function; `settings` are packed arguments, behind those of this call."""
    tag, name = keys.namespace, (library or crawl_library()).name
    return ("FCALL", f"{name}_{verb}", 2, f"{tag}:", f"{tag}::", packed(arguments), keys.spider, settings)


def packed(arguments: Mapping[str, Any]) -> bytes:
    """Return the arguments of a function as it unpacks them."""
    # use_bin_type: Redis' cmsgpack knows the first msgpack specification, which has no bytes.
    # surrogateescape: an id that is not UTF-8 goes back as it came.
    packed: bytes = msgpack.packb(arguments, use_bin_type=False, unicode_errors="surrogateescape")
    return packed


def is_missing(error: ResponseError) -> bool:
    """Tell whether a server has not got the library (it is a new one, or the version is)."""
    return "Function not found" in str(error)


async def call(redis: Redis, called: tuple[Any, ...]) -> Any:
    """Carry out a `command`: one round trip, but for the first one of a server, which loads the library."""
    run: Any = redis.execute_command
    try:
        return await run(*called)
    except ResponseError as error:
        if not is_missing(error):
            raise
    await load(redis)
    return await run(*called)


async def load(redis: Redis) -> None:
    """Give the library to a server that has not got it."""
    run: Any = redis.execute_command
    try:
        await run("FUNCTION LOAD", crawl_library().text)
    except ResponseError as error:
        if "already exists" not in str(error):  # another worker was faster
            raise
