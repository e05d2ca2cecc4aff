"""Takes a send slot for a request without a lease: for a robots.txt, or from `scrapy shell`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple

from crawlproject.politeness.slots import HORIZON_S, LATE_S
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.worker import Shutdown

_TRY_AGAIN_S = 0.25  # after trouble with Redis


class NotYet(NamedTuple):
    """There is no slot within a second; ask again after `wait` seconds."""

    wait: float


async def try_send_slot(
    state: State,
    *,
    source: str | None = None,
    domain: str | None = None,
    sent_by: str | None = None,
    calls: AbstractAsyncContextManager[object] | None = None,
) -> float | NotYet:
    """Take a slot of `source`, or of the source of `domain`, and return it when its moment has come.

    A slot that leases could not have had yet is confirmed before use: its source may have been halted since, or
    the clock set forward.
    `sent_by` is the source whose robots.txt leads there; `calls` bounds the concurrent calls to Redis.

    Raises:
        RedisError, OSError: as the client does (`REDIS_TROUBLE`).

    """
    loop = asyncio.get_running_loop()
    calls = calls or nullcontext()
    while True:
        async with calls:
            slot, wait, moment = await state.scripts.acquire(source=source, domain=domain, sent_by=sent_by)
        if slot is None:
            return NotYet(wait)
        ahead = slot - loop.time()
        await asyncio.sleep(max(ahead, 0))
        confirmed = ahead <= HORIZON_S or await state.scripts.confirm(moment, source=source, domain=domain)
        if confirmed and loop.time() - slot <= LATE_S:
            return slot


async def take_send_slot(
    state: State, shutdown: Shutdown, *, source: str | None = None, domain: str | None = None
) -> float | None:
    """Wait for a slot, however long that takes, without holding one meanwhile; None when the worker stops."""
    while not shutdown.has_begun:
        try:
            slot = await try_send_slot(state, source=source, domain=domain)
        except REDIS_TROUBLE as error:
            state.failed(error)
            slot = NotYet(_TRY_AGAIN_S)
        if not isinstance(slot, NotYet):
            return slot
        await asyncio.sleep(min(slot.wait, _TRY_AGAIN_S))
    return None
