"""Takes a send slot for a request without a lease: for a robots.txt, or from `scrapy shell`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from crawlproject.politeness.slots import HORIZON_S, LATE_S
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.worker import Shutdown

_TRY_AGAIN_S = 0.25


async def take_send_slot(
    state: State,
    shutdown: Shutdown,
    *,
    source: str | None = None,
    domain: str | None = None,
    fetch_lock: str | None = None,
    patience_s: float = math.inf,
    is_ready: Callable[[], bool] = lambda: True,
    calls: AbstractAsyncContextManager[object] | None = None,
) -> float | None:
    """Wait for a slot of `source`, or of the source of `domain`, and return it when its moment has come.

    A slot far ahead is confirmed before use: its source may have been halted since. No slot is taken unless
    `is_ready` says that it could be used. `fetch_lock` names the origin whose lock must outlast the wait; `calls`
    bounds the concurrent calls to Redis.

    Returns:
        The slot, on `loop.time()`; None when the worker stops, or after `patience_s` seconds without a slot.

    """
    loop = asyncio.get_running_loop()
    calls = calls or nullcontext()
    give_up_at = loop.time() + patience_s
    while not shutdown.has_begun:
        slot = None
        try:
            if is_ready():
                async with calls:
                    slot = await state.scripts.acquire(source=source, domain=domain, fetch_lock=fetch_lock)
            if slot is not None:
                ahead = slot - loop.time()
                await asyncio.sleep(max(ahead, 0))
                confirmed = ahead <= HORIZON_S or await state.scripts.confirm(source=source, domain=domain)
                if confirmed and is_ready() and loop.time() - slot <= LATE_S:
                    return slot
                continue
        except REDIS_TROUBLE as error:
            state.failed(error)
        if loop.time() > give_up_at:
            return None
        await asyncio.sleep(_TRY_AGAIN_S)
    return None
