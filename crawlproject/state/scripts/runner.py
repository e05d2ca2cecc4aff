"""Calls the functions of one Redis, and learns from their replies what time it is."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError, ResponseError

from crawlproject.config import CircuitRules
from crawlproject.politeness.slots import DOUBT_S
from crawlproject.sources.rates import MINIMUM_RATE
from crawlproject.state import functions
from crawlproject.state.clock import RedisClock, local_time
from crawlproject.state.health import Health, is_readonly
from crawlproject.state.keys import Keys
from crawlproject.state.master import replicated

logger = logging.getLogger(__name__)

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


class ScriptRunner:
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
        self._settings = functions.packed(_SETTINGS | settings)
        self._known = keys
        self._clock = clock
        self._health = health or Health()
        self._waits = waits

    async def _run(self, verb: str, **arguments: Any) -> Any:
        if self._waits:
            return await self._run_replicated(verb, **arguments)
        try:
            reply = await functions.call(self._redis, self._command(verb, arguments))
        except RedisError as error:
            if is_readonly(error):  # a master that was demoted: the next call looks for the new one
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise
        self._health.answered()
        return reply

    async def _run_replicated(self, verb: str, **arguments: Any) -> Any:
        """Call a function whose effects are not to be forgotten: a replica has them, if its master has any.

        Raises:
            RedisError: none has confirmed it in time, among other things. What was written is written.

        """
        command = self._command(verb, arguments)

        def write(pipe: Pipeline) -> None:
            pipe.execute_command(*command)

        try:
            [reply] = await replicated(self._redis, verb, write)
        except ResponseError as error:
            if not functions.is_missing(error):
                raise
            await functions.load(self._redis)
            [reply] = await replicated(self._redis, verb, write)
        self._health.answered()
        return reply

    def _command(self, verb: str, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        return functions.command(verb, self._known, arguments, self._settings)

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
