"""What each class of sources gets when far more is due than workers take.

    python -m benchmarks.overload [--sources N] [--seconds S]

N sources of 5 requests a second, a fifth of them in each class, have more work than one worker takes: it leases
30 requests each 150 ms. For each class it prints its share of what went out and the longest wait of a source.
Redis' clock is moved by the benchmark, so that the figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

from crawlproject import config
from crawlproject.state import embedded
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from crawlproject.state.scripts import NewRequest, Settlement

_CLASSES = range(5)
_EVERY_S = 0.15
_WANT = 30
_RATE = 5.0


def _digest(turn: int, number: int) -> bytes:
    return hashlib.sha1(b"%d %d" % (turn, number), usedforsecurity=False).digest()


async def _feed(state: State, count: int, each: int) -> None:
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    redis: Any = state.redis
    await redis.persist(state.keys.pulse)
    await state.scripts.heartbeat("w", join=True, timeout=86_400, max_deliveries=3)
    names = [f"source{number}" for number in range(count)]
    for first in range(0, count, 1000):
        await state.scripts.set_rates(fence, [(name, _RATE, _RATE) for name in names[first : first + 1000]], {})
    for turn in range(each):
        for first in range(0, count, 500):
            items = [
                NewRequest(
                    bytes((1, 0, number % 5)) + b"%d" % turn, _digest(turn, number), again=True, source=name
                )
                for number, name in enumerate(names[first : first + 500], first)
            ]
            await state.scripts.enqueue("w", items, high_water=10**9, refuse_unknown=False)


async def measure(url: str, count: int, seconds: float) -> None:
    """Measure and print."""
    state = State(config.load({"REDIS_URL": url}), "images")
    await state.open()
    taken = _WANT / _EVERY_S * seconds
    await _feed(state, count, int(3 * taken / count) + 3)
    redis = cast("Any", state.redis)
    now = ((await redis.time())[0] + 86_400) * MICROS
    began, last, longest = now, dict[str, int](), Counter[int]()
    given: Counter[int] = Counter()
    while now < began + seconds * MICROS:
        now += round(_EVERY_S * MICROS)
        await redis.hset(state.keys.clock, mapping={"seen": now, "ahead": 0, "resume": 0})
        reply = await state.scripts.lease("w", _WANT, rooms={}, room=1, horizon=0.25, dead_maxlen=10**6)
        for grant in reply.grants:
            source, number = grant.id.partition(":")[2], grant.entry[2]
            given[number] += 1
            longest[number] = max(longest[number], now - last.get(source, began))
            last[source] = now
        await state.scripts.settle("w", [Settlement(one.id, "x", one.entry, done=True) for one in reply.grants])
    for number in range(count):
        longest[number % 5] = max(longest[number % 5], now - last.get(f"source{number}", began))
    print(f"{given.total() / seconds:.0f} requests a second of {count * _RATE:.0f} that are due")
    for number in reversed(_CLASSES):
        share = given[number] / given.total()
        print(f"class {number}: {share:5.1%}, the longest wait {longest[number] / MICROS:6.1f} s")
    await state.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=2_500)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    logging.getLogger("crawlproject").setLevel(logging.ERROR)  # that the clock was set
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        url = embedded.ensure(folder)
        try:
            asyncio.run(measure(url, options.sources, options.seconds))
        finally:
            embedded.stop(folder)


if __name__ == "__main__":
    main()
