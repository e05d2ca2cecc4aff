"""Send slots: taken for a request without a lease, and checked where a request is written to its connection."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Self

from crawlproject.models import Lease, Slot
from crawlproject.politeness.slots import HORIZON_S, RENEWAL_S, tolerance
from crawlproject.runtime import Shutdown
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.clock import MICROS, local_time
from crawlproject.state.shards import SourceElsewhere

_TRY_AGAIN_S = 0.25  # after trouble with Redis
_MOST_HOPS = 3  # from shard to shard at a time: their catalogues may differ for a moment


async def try_send_slot(
    state: State,
    *,
    source: str | None = None,
    domain: str | None = None,
    host: str,
    sent_by: str | None = None,
    calls: AbstractAsyncContextManager[object] | None = None,
) -> Slot | float:
    """Take a slot of a source (see `Scripts.acquire`) for a request to `host`; return it when it has come.

    Where there is none within a second: return after how many seconds to ask again.

    A slot that leases could not have had yet is confirmed before use: its source may have been halted since, or
    the clock set forward.
    `sent_by` is the source whose robots.txt leads there; `calls` bounds the concurrent calls to Redis.

    Raises:
        Excluded: nothing goes out to that source or host.
        RedisError, OSError: as the client does (`REDIS_TROUBLE`).

    """
    calls = calls or nullcontext()
    shard, hops = state.shard_for(source or domain or ""), 0
    while hops < _MOST_HOPS:
        try:
            async with calls:
                slot, wait = await shard.scripts.acquire(source=source, domain=domain, host=host, sent_by=sent_by)
        except SourceElsewhere as elsewhere:
            shard, hops = state.shard_for(elsewhere.source), hops + 1
            continue
        if slot is None:
            return wait
        ahead = slot.moment - local_time()
        await asyncio.sleep(max(ahead, 0))
        confirmed = ahead <= HORIZON_S
        if not confirmed:
            async with calls:
                confirmed = await shard.scripts.confirm(slot, host=host)
        if confirmed and local_time() <= slot.latest and shard.clock.permits(slot.moment):
            return slot
    return _TRY_AGAIN_S


async def take_send_slot(
    state: State, shutdown: Shutdown, *, source: str | None = None, domain: str | None = None, host: str
) -> Slot | None:
    """Wait for a slot, however long that takes, without holding one meanwhile; None when the worker stops.

    Raises:
        Excluded: see try_send_slot.

    """
    while not shutdown.has_begun:
        try:
            slot = await try_send_slot(state, source=source, domain=domain, host=host)
        except REDIS_TROUBLE as error:
            state.failed(error)
            slot = _TRY_AGAIN_S
        if isinstance(slot, Slot):
            return slot
        await asyncio.sleep(min(slot, _TRY_AGAIN_S))
    return None


class Passage:
    """Leave to send one request to `host`: with `slot`, which is that of `lease` if the request has one.

    Connecting takes time, a slow site's TLS seconds. The pool asks whether the request may still go out when the
    connection is there, right before it is written.
    """

    def __init__(self, state: State, slot: Slot, host: str, lease: Lease | None = None) -> None:
        self._state = state.shard_for(slot.source) if lease is None else state
        self._host = host
        self._slot = slot
        self._lease = lease
        self.sent: int | None = None  # when its request was written, on Redis' clock (µs)
        self.waited = 0.0  # seconds that the request has waited for another slot, its connection ready

    @classmethod
    def of_lease(cls, state: State, lease: Lease, host: str) -> Self:
        """Return the leave that a lease gives."""
        slot = Slot(lease.source, lease.slot, lease.at, lease.rate, tolerance(lease.rate))
        return cls(state, slot, host, lease)

    @property
    def slot(self) -> Slot:
        """The slot that the request goes out with."""
        return self._slot

    @property
    def is_open(self) -> bool:
        """Whether the request may be written now."""
        now, clock = local_time(), self._state.clock
        in_time = now <= self._slot.latest if self._lease is None else self._lease.is_fresh(now)
        return in_time and clock.permits(self._slot.moment)

    def use(self) -> None:
        """Note that the request is being written."""
        late = local_time() - self._slot.moment
        self.sent = self._slot.at + round(late * MICROS)
        if self._lease is not None:
            self._lease.sent = True

    async def renew(self) -> bool:
        """Exchange the slot that was missed for one that comes soon, wait for it, and tell whether it came."""
        began = local_time()
        if self._lease is not None and self._lease.revoked:
            return False
        try:
            slot = await self._state.scripts.renew(
                self._slot,
                within=RENEWAL_S,
                host=self._host,
                worker=self._state.worker_id if self._lease is not None else None,
                lease=self._lease.id if self._lease is not None else None,
            )
        except REDIS_TROUBLE as error:
            self._state.failed(error)
            return False
        if slot is None:
            return False
        await asyncio.sleep(max(slot.moment - local_time(), 0))
        self._slot = slot
        if self._lease is not None:
            self._lease.at, self._lease.latest = slot.at, slot.latest
        self.waited += local_time() - began
        return self.is_open
