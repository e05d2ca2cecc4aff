"""The ways between the shards of a crawl: outboxes, and those who carry what is in them.

Every worker may carry, at any time and beside the others. What is on its way is in the outbox until the shard that
it is for has it; a worker that ends between two steps, or a call that is lost or comes late, neither loses nor
doubles it: the functions say why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.found_elsewhere import bring, unpacked
from crawlproject.state.keys import Keys
from crawlproject.state.scripts import CarrierScripts, OutboxScripts
from crawlproject.texts import printable, scrapy_command

logger = logging.getLogger(__name__)

_CHUNK = 500  # seeds and requests offered at once; as many as Lua unpacks at once, and well below
_LOOK_S = 1.0  # between two looks for something to carry
_TURN_S = 0.5  # between two looks whether it is still another worker's turn to divide seeds
_WAIT_S = 1  # for a seed that users push
_RETRY_S = 1.0
_WAYS = 8  # where in an item it says how many ways it has come,
_FIRST_KEPT = 4  # and what stands there when it has stayed once: see the Lua module `shards`


class Carrier:
    """Brings what is in the outboxes of one place to the shards that it is for, each on its own.

    `outbox` is what these shards know the place by, `scripts` those that run there.
    """

    def __init__(self, state: State, outbox: str, scripts: CarrierScripts, *, of_shard: bool = False) -> None:
        self._state = state
        self._of_shard = of_shard
        self._outbox = outbox
        self._scripts = scripts
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self.wanted = asyncio.Event()  # there is something to carry

    @classmethod
    def of_shard(cls, shard: State) -> Carrier:
        """Return what carries the outboxes of a shard."""
        return cls(shard, f"shard:{shard.number}", shard.scripts, of_shard=True)

    async def look(self) -> None:
        """Look what there is to carry, carry it to each shard in a task of its own, and rest."""
        for shard in await self._scripts.waiting(self._state.worker_id):
            if shard not in self._under_way:
                task = self._under_way[shard] = asyncio.create_task(self._bring(shard))
                task.add_done_callback(lambda _, shard=shard: self._under_way.pop(shard, None))  # type: ignore[misc]
        self.wanted.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self.wanted.wait()

    async def _bring(self, shard: int) -> None:
        try:
            await self.carry(shard)
        except REDIS_TROUBLE as error:
            self._state.failed(error)
            await asyncio.sleep(_RETRY_S)
        except Exception:
            logger.exception("Bug in carrying from %s to shard %d; going on", self._outbox, shard)
            await asyncio.sleep(_RETRY_S)

    async def carry(self, shard: int) -> None:
        """Bring all that there is to a shard, unless that has no leader for now.

        Raises:
            ResponseError: that refuses it, because of data not written by crawlproject.

        """
        target = self._state.shards[shard]
        while items := await self._scripts.offer(shard, count=_CHUNK):
            known = await bring(self._state, target, items) if self._of_shard else items
            taken = known and await target.scripts.receive(
                self._outbox,
                known,
                high_water=target.bounds.high_water,
                refuse_unknown=target.config.unknown_sources == "refuse",
            )
            if not taken:  # it has no leader that knows the catalogue
                await asyncio.sleep(_RETRY_S)
                return
            if self._of_shard and shard == self._state.number:
                _report_kept(items)
            await self._scripts.forget_sent(shard, taken)

    async def stop(self) -> None:
        """Carry no more."""
        while tasks := list(self._under_way.values()):  # redis-py may swallow a cancellation, on Python 3.11
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.1)


def _report_kept(items: Sequence[bytes]) -> None:
    """Log what a shard has kept for a while, and has just looked at again; each the first time."""
    if found := [item for item in map(unpacked, items) if item[_WAYS : _WAYS + 1] == [_FIRST_KEPT]]:
        seed, name, domain = (text.decode(errors="replace") for text in found[0][2:5])
        is_seed = found[0][1] == b"seed"
        logger.warning(
            "Seeds or links have stayed for seconds, as the shards disagree whose they are: %d, the first %s. "
            "If that goes on, see whether each shard has a leader: %s",
            len(found),
            f"{printable(seed)}, of {printable(domain or name)}" if is_seed else "what a page has led to",
            scrapy_command("shards"),
            extra={"source": printable(domain or name)} if is_seed else {},
        )


class SeedOutboxes:
    """The list that users push seeds to, and the outboxes beside it, one for each shard."""

    def __init__(self, state: State) -> None:
        keys = Keys(f"{{{state.keys.users_seeds}}}", state.keys.spider, state.keys.crawl)
        self._users = keys.users_seeds
        self._outboxes = [f"{keys.outbox_of}{number}" for number in range(state.count)]
        self._worker = state.worker_id
        self._redis = state.client_for(self._users)
        self._scripts = OutboxScripts(self._redis, keys, state.clock, state.health, shard=(0, state.count))
        self.carrier = Carrier(state, "users", self._scripts)

    async def peek(self, count: int) -> list[bytes]:
        """Return the seeds that come next; none while another worker divides them. Without seeds, wait for one."""
        seeds = await self._scripts.peek_seeds(self._worker, count)
        # Nothing is moved: see seed_list.py.
        if not seeds and await self._redis.blmove(self._users, self._users, _WAIT_S, "RIGHT", "RIGHT") is not None:
            await asyncio.sleep(_TURN_S)
        return seeds

    async def split(self, seeds: Sequence[bytes], to: Sequence[int]) -> bool:
        """Put these seeds into the outboxes to the shards `to`; False if others come next by now."""
        is_split = await self._scripts.split_seeds(seeds, to)
        self.carrier.wanted.set()
        return is_split

    async def is_empty(self) -> bool:
        """Tell whether no seed waits here, or is on its way."""
        redis: Any = self._redis
        return not await redis.exists(self._users, *self._outboxes)

    async def close(self) -> None:
        """Close all connections."""
        await self.carrier.stop()
        await self._redis.aclose()
