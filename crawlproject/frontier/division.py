"""The division of a crawl among shards, step by step: `scrapy reshard`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from crawlproject.config import Config
from crawlproject.errors import FrontierInUse
from crawlproject.frontier.dropped import forget_dropped
from crawlproject.state import reshard
from crawlproject.state.client import BlockingState, State
from crawlproject.state.clock import MICROS
from crawlproject.state.recount import recount, reschedule
from crawlproject.state.reshard_copy import Division
from crawlproject.state.scripts import Present
from crawlproject.state.seed_outbox import SeedOutbox
from crawlproject.state.users_keys import delete_rates, note_taken_rates

# What a division takes; see benchmarks/README.md.
_BYTES_A_S = 10_000_000  # of the memory of Redis, copied in a second
_FIELDS_A_S = 1_000_000  # of what each shard gets
_LEAST_S = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a division would take: the crawl's memory in Redis (B), and about how long it would stop (s)."""

    spiders: list[str]
    redis_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Divided:
    """What a division has brought to the shards, in how many seconds.

    `seeds` wait in their lists, `requests` wait, are delayed or in overflows. `seen_parts`: in how many slots the
    seen filter of before is. `left` counts the foreign keys in the namespace, which were not copied, `examples`
    names some of them; `folders` are those of CRAWL_OVERFLOW_STORE that stay.
    """

    shards: int
    spiders: list[str]
    sources: int
    seeds: int
    requests: int
    events: int
    dead_letters: int
    seen_parts: int
    left: int
    examples: list[str]
    folders: list[str]
    seconds: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A division into `shards` that was given up; `keys` were taken away from them."""

    shards: int
    keys: int


def plan(config: Config, target_config: Config, project: Sequence[str]) -> Plan:
    """Return what a division would take; the crawl may run.

    Raises:
        CrawlprojectError: it is divided already, or cannot be divided there.
        RedisError, RedisUnavailable: Redis fails, here or there.

    """
    with ExitStack() as opened:
        source = opened.enter_context(BlockingState.connect(config, divides=True))
        target = opened.enter_context(BlockingState.connect(target_config, divides=True))
        reshard.check_cluster(source, target)
        opened.enter_context(closing(reshard.Layouts(source, target))).check_undivided()
        spiders = reshard.spiders_of(source, project)
        size, fields = reshard.memory_of(source), reshard.fields_of_all(source)
    seconds = _LEAST_S + size / _BYTES_A_S + target_config.shards * fields / _FIELDS_A_S
    return Plan(spiders, size, seconds)


def divide(config: Config, target_config: Config, project: Sequence[str], say: Say) -> Divided:
    """Divide a crawl of one shard; `target_config` says among how many, and where. Blocks.

    Nobody may work on it meanwhile: who starts is refused. Where it breaks off, the same call begins anew.

    Raises:
        FrontierInUse: somebody works on it; nothing was done.
        CrawlprojectError: it cannot be divided there; or not now, and then the message says so.
        RedisError, RedisUnavailable: Redis fails.

    """
    began = time.monotonic()
    with ExitStack() as opened:
        source = opened.enter_context(BlockingState.connect(config, divides=True))
        target = opened.enter_context(BlockingState.connect(target_config, divides=True))
        reshard.check_cluster(source, target)
        spiders = reshard.spiders_of(source, project)
        layouts = opened.enter_context(closing(reshard.Layouts(source, target)))
        has_broken_off = layouts.begin()
        try:
            reshard.check_at_rest(source, spiders)
            layouts.check_formats()
            if not has_broken_off:
                reshard.check_clear(source, target)
            asyncio.run(_prepare(config, spiders))
        except BaseException:
            if not has_broken_off:
                layouts.withdraw()
            raise
        if has_broken_off:
            say("a division that broke off is begun anew")
        try:
            _clear(source, target, layouts.check)
            say(f"copying {reshard.memory_of(source) / 1e6:.0f} MB of {', '.join(spiders) or 'nothing'}")
            division = opened.enter_context(closing(Division(source, target, spiders, layouts.check)))
            division.copy()
            overrides = {} if source.is_on_cluster else reshard.overrides_of(source)
            asyncio.run(_finish(target_config, division, overrides))
            reshard.check_copied(source, target, spiders)
            sources, seeds = reshard.sources_of(source), reshard.seeds_of(source, spiders)
        except FrontierInUse:  # another process has taken it over
            raise
        except BaseException:
            say(
                "it broke off, and nobody can start: run this again, which begins anew; or, to go on with the "
                "crawl as it was, scrapy reshard --give-up"
            )
            raise
        layouts.end()
    return Divided(
        shards=target_config.shards,
        spiders=spiders,
        sources=sources,
        seeds=seeds,
        requests=sum(count.outstanding + count.overflow for count in division.counts.values()),
        events=division.events,
        dead_letters=division.dead_letters,
        seen_parts=division.parts,
        left=division.left,
        examples=division.examples,
        folders=division.folders,
        seconds=time.monotonic() - began,
    )


def begun(config: Config) -> int:
    """Return into how many shards a crawl is being divided.

    Raises:
        CrawlprojectError: no division of it has broken off.
        RedisError, RedisUnavailable: Redis fails.

    """
    with BlockingState.connect(config, divides=True) as source:
        return reshard.begun(source)


def give_up(config: Config, target_config: Config) -> GivenUp:
    """Take away what an unfinished division has written, so that the crawl goes on as it was. Blocks.

    Raises:
        FrontierInUse: a division is at work; nothing was done.
        CrawlprojectError: none has broken off, or not there; or it has ended, and workers may have crawled on.
        RedisError, RedisUnavailable: Redis fails; then the same call goes on.

    """
    with ExitStack() as opened:
        source = opened.enter_context(BlockingState.connect(config, divides=True))
        target = opened.enter_context(BlockingState.connect(target_config, divides=True))
        reshard.check_cluster(source, target)
        layouts = opened.enter_context(closing(reshard.Layouts(source, target)))
        layouts.check_unfinished()
        layouts.begin()
        deleted = _clear(source, target, layouts.check)
        layouts.give_up()
    return GivenUp(target_config.shards, deleted)


def _clear(source: BlockingState, target: BlockingState, check: Callable[[], None]) -> int:
    """Delete what a division that broke off has written; return how many keys of shards that was.

    `check` raises when another process has taken the division over.
    """
    if not source.is_on_cluster:  # else operators' rates are where they were
        rates = reshard.noted_rates(target)
        check()
        asyncio.run(_delete_rates(target.config, rates))
    return reshard.clear(target, check)


@asynccontextmanager
async def _opened(config: Config, spider: str = "images") -> AsyncIterator[State]:
    """Open a crawl that is being divided."""
    state = State(config, spider)
    await state.open(divides=True)
    try:
        yield state
    finally:
        await state.close()


async def _delete_rates(config: Config, rates: dict[str, str]) -> None:
    if rates:
        async with _opened(config) as state:
            await delete_rates(state, rates)


async def _prepare(config: Config, spiders: Sequence[str]) -> None:
    """Have what workers held that died be where it belongs, and put the counts right.

    Raises:
        FrontierInUse: a worker lives, or did until a moment ago.

    """
    for spider in spiders:
        async with _opened(config, spider) as state:
            await recount(state)
            await _take_back(state)
            await forget_dropped(state)
            if state.is_shard:
                await _take_in(state)


async def _take_back(state: State) -> None:
    """Return the leases and seeds of dead workers: that they are dead was seen."""
    timeout, deliveries = state.config.heartbeat_timeout, state.config.max_deliveries
    lost: Sequence[Any] = (None,)
    while lost:
        present, _ = await state.scripts.reclaim(Present(), timeout=timeout, max_deliveries=deliveries)
        silent_since = Present(present.last, present.last - int(timeout * MICROS) - 1)
        _, lost = await state.scripts.reclaim(silent_since, timeout=timeout, max_deliveries=deliveries)


async def _take_in(state: State) -> None:
    """Bring the seeds that are on their way from the users' list to the frontier's own."""
    outbox = SeedOutbox(state)
    try:
        while await outbox.has_sent():
            await outbox.forward()
    finally:
        await outbox.close()


async def _finish(config: Config, division: Division, overrides: dict[str, str]) -> None:
    """Have the sources of each shard be due, and operators find the rates that they have set."""
    for spider in {spider for spider, _ in division.counts}:
        async with _opened(config, spider) as state:
            for shard in state.shards:
                await reschedule(shard, sorted(division.counts[spider, shard.number].sources))
    if overrides:
        async with _opened(config) as state:
            await note_taken_rates(state, overrides)
