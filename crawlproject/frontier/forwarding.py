"""Gives what belongs to another shard to that one.

What waits for a shard is there until that shard has it. A worker may end between two steps, and another one may do
the same at the same time: a batch has a name, by which it is taken once, and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgpack
from scrapy import Request

from crawlproject.errors import BadSeed
from crawlproject.frontier.seed_list import users_seeds
from crawlproject.frontier.seeds import FULL_S, YIELD_EVERY, await_seed
from crawlproject.models import SOURCE
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import (
    Batch,
    Budget,
    Finds,
    ForwardingScripts,
    LinkGroup,
    NewRequest,
    Sitemaps,
    UsersSeedsScripts,
)
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.health import plain
from crawlproject.state.over_shards import not_answering
from crawlproject.state.shards import shard_of
from crawlproject.threads import end

logger = logging.getLogger(__name__)

_SPLIT = 500  # seeds that are divided among the shards at once
_BATCH = 500  # entries: as many as Lua unpacks at once, and well below
_LOOK_S = 0.5  # between two looks for something to forward
_RETRY_S = 1.0  # until a shard that has not taken all is given more


class Forwarder:
    """Gives what waits here for other shards to these: each in a task of its own, so that none waits for another.

    `scripts` run where it waits: in this shard, or where users push seeds (`UsersSeeds`).
    """

    def __init__(self, state: State, scripts: ForwardingScripts | None = None) -> None:
        self._state = state
        self._scripts = scripts or state.scripts
        self._origin = "users" if scripts else str(state.number)
        self._under_way: dict[int, asyncio.Task[None]] = {}

    async def step(self) -> None:
        """Look what waits, begin to give it, and rest."""
        for number in await self._scripts.waiting(self._state.worker_id):
            if number not in self._under_way:
                task = self._under_way[number] = asyncio.create_task(self._give_all(number))
                task.add_done_callback(lambda _, number=number: self._under_way.pop(number, None))  # type: ignore[misc]
        await asyncio.sleep(_LOOK_S)

    async def _give_all(self, number: int) -> None:
        try:
            while (taken := await self.give(number)) is not None:
                if not taken:
                    await asyncio.sleep(_RETRY_S)
                    return
        except REDIS_TROUBLE as error:
            self._state.failed(error)
            await asyncio.sleep(_RETRY_S)
        except Exception:
            logger.exception("Bug in forwarding to shard %d; going on", number)
            await asyncio.sleep(_RETRY_S)

    async def give(self, number: int) -> bool | None:
        """Give a shard the batch that comes next; None if there is none.

        False if the shard has not taken it, for want of a leader that knows the catalogue, or has sent some of it
        on: then the shards disagree whose that is, until all have read the same catalogue.

        Raises:
            REDIS_TROUBLE: one of the two fails.

        """
        batch = await self._scripts.batch(number, count=_BATCH)
        if batch is None:
            return None
        target = self._state.shards[number]
        try:
            is_taken, all_stay = await self._take(target, batch)
        except REDIS_TROUBLE as error:
            raise not_answering(target, plain(error)) from error
        if is_taken:
            await self._scripts.forget_batch(number, batch)
        return is_taken and all_stay

    async def _take(self, target: State, batch: Batch) -> tuple[bool, bool]:
        """Have a shard take a batch; return whether it has, and whether all of it stays there."""
        links, new, others, all_stay = list[dict[str, Any]](), list[NewRequest](), list[bytes](), True
        for packed in batch.entries:
            entry = msgpack.unpackb(packed, unicode_errors="surrogateescape")
            if entry["kind"] == "link":
                links.append(entry)
            elif entry["kind"] == "new":
                new.append(_new(entry))
            else:
                others.append(packed)
        for pages, bounds in _calls(links):
            replies = await target.scripts.discover(pages, **bounds)
            if replies is None:
                return False, False
            all_stay = all_stay and not any("o" in (letters or "") for letters in replies)
        if new:
            stored = await target.scripts.enqueue(self._state.worker_id, new)
            if stored is None or stored.unstored:
                return False, False
            all_stay = all_stay and not stored.forwarded
        # Also without any: once this is on a replica, so are the others.
        is_taken = await target.scripts.receive(self._origin, Batch(batch.name, others))
        return is_taken, all_stay

    async def stop(self) -> None:
        """Forward no more."""
        await end(*self._under_way.values())


class UsersSeeds:
    """The one list that users push seeds to, where there are several shards, or one on a Redis Cluster.

    A seed goes to the shard of the source that it names, or else of the domain of its URL. Where the catalogue
    says that it is another source's, that shard forwards it (`state/lua/functions/enqueue.lua`). It waits beside
    the list until its shard has it, so that none waits for one that is away.
    """

    def __init__(self, state: State, request_of: Callable[[bytes], Request]) -> None:
        keys = users_seeds(state)
        assert keys is not None, "a shard that is not one of several reads the list itself"
        self._state = state
        self._request_of = request_of
        self._key = keys.users_seeds
        self._waiting = [f"{prefix}{n}" for prefix in (keys.foreign_of, keys.batch_of) for n in range(state.count)]
        self._redis: Any = state.client_for(self._key)
        self.scripts = UsersSeedsScripts(
            self._redis,
            keys,
            state.clock,
            state.health,
            shard=0,
            shards=state.count,
            overflow_maxlen=state.bounds.overflow_maxlen,
        )
        self._forwarder = Forwarder(state, self.scripts)
        self.forward = self._forwarder.step  # give the shards what is theirs

    async def split(self) -> None:
        """Divide some; without seeds, or while another worker divides them, wait."""
        seeds = await self.scripts.peek_seeds(self._state.worker_id, _SPLIT)
        if not seeds:
            if await await_seed(self._redis, self._key):
                await asyncio.sleep(FULL_S)
            return
        to = []
        for number, seed in enumerate(seeds, 1):
            to.append(self._shard_for(seed))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # so that no send slot is missed
        if not await self.scripts.split_seeds(seeds, to):
            await asyncio.sleep(FULL_S)

    def _shard_for(self, seed: bytes) -> int:
        count = self._state.count
        try:
            request = self._request_of(seed)
            return shard_of(request.meta.get(SOURCE) or domain_of_url(request.url), count)
        except (BadSeed, TypeError, ValueError):  # a dead letter, wherever it is read
            return shard_of(seed.decode(errors="replace"), count)

    async def is_empty(self) -> bool:
        """Tell whether no seed waits here."""
        return not await self._redis.exists(self._key, *self._waiting)

    async def close(self) -> None:
        """Forward no more, and close all connections."""
        await self._forwarder.stop()
        await self._redis.aclose()


_Links = Sequence[Mapping[str, Any]]


def _calls(links: _Links) -> Iterator[tuple[list[Finds], dict[str, Any]]]:
    """Yield what `Scripts.discover` takes in each call: pages' links, and how many links may be admitted."""
    for some in _alike(links, "budget", "most_outstanding"):
        budget = some[0].get("budget")
        bounds = {"budget": budget and Budget(**budget), "most_outstanding": some[0].get("most_outstanding")}
        yield [_finds(page) for page in _alike(some, "page")], bounds


def _alike(links: _Links, *names: str) -> Iterator[_Links]:
    """Yield links that follow one another and have these fields in common."""
    for _, some in groupby(links, lambda link: [link.get(name) for name in names]):
        yield list(some)


def _finds(links: _Links) -> Finds:
    """Return the links of one page, by their source and domain."""
    groups: dict[tuple[str | None, str], LinkGroup] = {}
    for link in links:
        source, domain = link.get("source"), link["domain"]
        group = groups.setdefault((source, domain), LinkGroup(domain, source))
        group.entries.append(_bytes(link["entry"]))
        group.digests.append(_bytes(link["digest"]))
        group.hosts.append(int(link["host"] or 0) or "")
    sitemaps = links[0].get("sitemaps")
    return Finds(list(groups.values()), sitemaps=sitemaps and Sitemaps(**sitemaps))


def _new(entry: Mapping[str, Any]) -> NewRequest:
    once = entry.get("once")
    return NewRequest(
        _bytes(entry["entry"]),
        _bytes(entry["digest"]),
        again=entry.get("again", False),
        source=entry.get("source"),
        domain=entry.get("domain"),
        once=once and _bytes(once),
    )


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
