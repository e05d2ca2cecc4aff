"""Lease calls on a frontier of many sources; lease_cost.py runs it with the `crawlproject` of a checkout.

    PYTHONPATH=CHECKOUT python lease_calls.py REDIS_URL SOURCES CLASSES

Every source has one request and is due; one in ten has 20 requests a second, three in ten 2, the others 0.2. Their
requests have CLASSES priorities in turn. For each line that comes in, makes a batch of calls and prints the CPU
time of Redis for one lease, in µs.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from inspect import signature
from typing import Any

from crawlproject import config

try:
    from crawlproject.state.client import State
    from crawlproject.state.scripts import NewRequest
except ImportError:  # up to 0.1
    from crawlproject.store.client import Store as State  # type: ignore[import-not-found,no-redef]
    from crawlproject.store.scripts import NewRequest  # type: ignore[import-not-found,no-redef]

_WORKER = "benchmark"
_WANT = 64  # leases a call
_CALLS = 50  # a batch
_RATES = (20.0, 2.0, 2.0, 2.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2)  # of each ten sources


def _request(number: int, classes: int) -> Any:
    entry = b"\x01\x00" + bytes([number // len(_RATES) % classes]) + b"u" * 180
    if "digest" in NewRequest.__annotations__:
        place: dict[str, Any] = {"digest": hashlib.sha256(str(number).encode()).digest()}
    else:  # up to 0.1
        place = {"bucket": f"{number % 1000:05x}", "member": number}
    return NewRequest(entry, **place, again=True, source=f"source{number}")


async def _fill(state: Any, sources: int, classes: int) -> None:
    for first in range(0, sources, 500):
        numbers = range(first, min(first + 500, sources))
        if first % 5_000 == 0:
            await state.scripts.lead(_WORKER, ready=True)
        rates = {f"source{number}": f"{_RATES[number % len(_RATES)]:.17g}" for number in numbers}
        await state.redis.hset(state.keys.rates, mapping=rates)
        items = [_request(number, classes) for number in numbers]
        await state.scripts.enqueue(
            _WORKER, items, seeds=[], high_water=10**9, dead_maxlen=10**6, refuse_unknown=False
        )


async def _batch(state: Any) -> float:
    """Make the calls of a batch; return the microseconds of a lease."""
    new = "rooms" in signature(state.scripts.lease).parameters
    shares: dict[str, Any] = (
        {"rooms": {}, "room": _WANT} if new else {"cap": _WANT, "cap_alone": _WANT, "holding": {}}
    )
    await state.scripts.lead(_WORKER, ready=True)

    async def spent() -> float:
        info = await state.redis.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    before, leases = await spent(), 0
    for number in range(_CALLS):
        if number % 10 == 9:  # on a busy machine a batch takes long
            await state.scripts.lead(_WORKER, ready=True)
        reply = await state.scripts.lease(_WORKER, _WANT, **shares, horizon=0.25, dead_maxlen=10**6)
        leases += len(reply.grants)
    assert leases == _CALLS * _WANT, reply.state
    return (await spent() - before) * 1e6 / leases


async def main(url: str, sources: int, classes: int) -> None:
    """Fill an empty Redis; lease and print as often as is asked for."""
    state: Any = State(config.load({"REDIS_URL": url}), "images")
    await state.open()
    await state.scripts.lead(_WORKER, ready=True)
    await state.scripts.heartbeat(_WORKER, join=True, timeout=3600, max_deliveries=3)
    await _fill(state, sources, classes)
    await state.scripts.lead(_WORKER, ready=True)
    print("filled", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        await state.scripts.lead(_WORKER, ready=True)
        await state.scripts.heartbeat(_WORKER, join=True, timeout=3600, max_deliveries=3)
        await asyncio.sleep(1.0)  # should nobody have led for long meanwhile, nothing goes out for a moment
        print(await _batch(state), flush=True)
    await state.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4])))
