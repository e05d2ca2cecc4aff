"""The library of Redis Functions in `lua/`: its text, and how one of them is called."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgpack
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from crawlproject.config import CircuitRules
from crawlproject.politeness.slots import DOUBT_S
from crawlproject.sources.rates import MINIMUM_RATE
from crawlproject.state.clock import RedisClock, local_time
from crawlproject.state.health import Health, is_readonly
from crawlproject.state.keys import Keys
from crawlproject.state.master import replicated

logger = logging.getLogger(__name__)

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
    text = text.replace("@KEYS@", ", ".join(map(_lua_table, Keys.spellings())))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]
    name = f"crawl_{digest}"
    return Library(name, f"#!lua name={name}\n" + text.replace("@DIGEST@", digest))


def _lua_table(texts: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name} = '{text}'" for name, text in texts.items()) + "}"


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
    packed: bytes = msgpack.packb(
        arguments, use_bin_type=False, unicode_errors="surrogateescape", default=set_fields
    )
    return packed


def set_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass but for those that are None or False: both are nil to Lua."""
    values = ((name, getattr(record, name)) for name in _names(record.__class__))
    return {name: value for name, value in values if value is not None and value is not False}


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


async def call(redis: Redis, called: tuple[Any, ...], *, waits_for: str = "") -> Any:
    """Carry out a `command`: one round trip, but for the first one of a server, which loads the library.

    With `waits_for`, which the error names, a replica has what it wrote, if its master has any.

    Raises:
        RedisError: none has confirmed it in time, among other things. What was written is written.

    """

    async def run() -> Any:
        if waits_for:
            return await replicated(redis, waits_for, called)
        return await redis.execute_command(*called)  # type: ignore[no-untyped-call]

    try:
        return await run()
    except ResponseError as error:
        await _load(redis, error)
    return await run()


async def _load(redis: Redis, error: ResponseError) -> None:
    """Give the library to a server that has not got it: it is new, or the version is. Raise any other error."""
    if "Function not found" not in str(error):
        raise error
    run: Any = redis.execute_command
    try:
        await run("FUNCTION LOAD", crawl_library().text)
    except ResponseError as refused:
        if "already exists" not in str(refused):  # another worker was faster
            raise


_SETTINGS = {
    "min_rate": MINIMUM_RATE,
    "circuit": CircuitRules().packed(),
    "pace": 0,  # µs that the spider keeps between its requests to one source
    "high_water": 1_000_000,  # requests in the frontier
    "overflow_maxlen": 1_000_000,  # beyond sources' windows, in Redis; as many may wait for another shard
    "seen_capacity": 10_000_000,
    "dead_maxlen": 1_000_000,  # dead letters, and refusals beside them
    "refuse_unknown": False,  # sources that the catalogue does not name
    "latency_backoff": True,  # slow answers slow a source down
}


class Caller:
    """The functions of one Redis. Each method of a subclass is one round trip and raises what the client raises.

    `health` is told of each one that went well.
    `settings` are what the functions take for all calls of this worker (see `_SETTINGS`), and, with several
    shards, `shard`, the number of this one, and `shards`, how many there are. `waits`: a replica has what any of
    them writes, if there is one.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        clock: RedisClock,
        health: Health | None = None,
        *,
        waits: bool = False,
        **settings: Any,
    ) -> None:
        self._redis = redis
        self._shards: int = settings.get("shards", 1)
        self._settings = packed(_SETTINGS | settings)
        self._known = keys
        self._clock = clock
        self._health = health or Health()
        self._waits = waits

    async def _run(self, verb: str, waits: bool = False, /, **arguments: Any) -> Any:
        """Call a function; `waits`: its effects are not to be forgotten, a replica has them."""
        called = command(verb, self._known, arguments, self._settings)
        try:
            reply = await call(self._redis, called, waits_for=verb if waits or self._waits else "")
        except RedisError as error:
            if is_readonly(error):  # a master that was demoted: the next call looks for the new one
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise
        self._health.answered()
        return reply

    def _observe(self, sent: float, ran: bytes) -> None:
        moved = self._clock.observe(sent, int(ran), local_time())
        if moved:
            logger.warning(
                "The clocks of Redis and this machine differ by %+.3f s more than before (one was set, a machine "
                "slept, or the connection became faster): nothing goes out for %g s",
                moved,
                DOUBT_S,
            )


def texts(values: Sequence[bytes]) -> list[str]:
    """Return names that Redis holds; others than crawlproject may have written them, in any encoding."""
    return [value.decode(errors="replace") for value in values]
