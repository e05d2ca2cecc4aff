"""The frontier of one domain with a million links, without a budget: memory, time in Redis, and disk.

    python -m benchmarks.overflow [LINKS]

Links are admitted by `discover`, as a worker does it, and spilled as they come; then all are crawled in order.
The time is CPU of Redis' process, the memory that of all keys of the frontier but the seen filter.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import redis

from benchmarks.redis_servers import Server
from crawlproject import config
from crawlproject.frontier.codec import url_of
from crawlproject.frontier.discovery import LINKS_A_CALL, Discovery, Link
from crawlproject.frontier.overflow import Overflow
from crawlproject.state.client import State
from crawlproject.state.scripts import Settlement
from crawlproject.storage.packs import FolderPacks

SITE = "shop.example"
_MANY_SOURCES = 400


def url(number: int, site: str = SITE) -> str:
    """Return an address as a shop has it."""
    return f"https://{site}/collections/{number % 977}/products/{number * 7919 % 10_000_019}-item-{number}"


class Measured:
    """The size of a frontier's keys, and the CPU time of its Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.peak = 0

    def size(self) -> int:
        """Return the bytes of the keys of the frontier now, without those of the seen filter."""
        total = 0
        for key in self.client.scan_iter("crawl:images:*", count=10_000):
            if not key.startswith(b"crawl:images:seen:"):
                total += self.client.memory_usage(key, samples=0) or 0
        self.peak = max(self.peak, total)
        return total

    def cpu(self) -> float:
        """Return the seconds of CPU since the server started."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def _admit(discovery: Discovery, links: list[Link]) -> None:
    found = await discovery.admit(links)
    assert found is not None
    assert found.admitted == len(links), found


async def _one_domain(state: State, packs: FolderPacks, measured: Measured, count: int) -> None:
    discovery, overflow = Discovery(state.scripts, state.config), Overflow(state, packs)
    discovering = spilling = 0.0
    for first in range(0, count, LINKS_A_CALL):
        links = [Link(url(number)) for number in range(first, min(first + LINKS_A_CALL, count))]
        before = measured.cpu()
        await _admit(discovery, links)
        between = measured.cpu()
        while await overflow.step():
            pass
        discovering, spilling = discovering + between - before, spilling + measured.cpu() - between
        if first % (20 * LINKS_A_CALL) == 0:
            measured.size()
    name = str(next(iter(measured.client.hkeys(state.keys.packs))), "ascii")  # type: ignore[arg-type]
    folder = name.partition("/")[0]
    disk = sum((packs.folder / name).stat().st_size for name in packs.names(folder))
    print(f"{count} links admitted: peak {measured.peak / 1e3:.0f} KB, now {measured.size() / 1e3:.0f} KB")
    print(f"discover {discovering / count * 1e6:.2f} µs a link, spill {spilling / count * 1e6:.2f} µs")
    print(f"disk {disk / count:.1f} B a link, {len(packs.names(folder)) - 1} packs")
    await state.redis.hset(state.keys.rates, SITE, "100000")
    number, refilling = 0, 0.0
    while not (await state.scripts.idleness()).is_idle:
        before = measured.cpu()
        await overflow.step()
        refilling += measured.cpu() - before
        reply = await state.scripts.lease(
            "w",
            1000,
            rooms={},
            room=1000,
            horizon=1.0,
            dead_maxlen=9,
            high_water=10**6,
        )
        for grant in reply.grants:
            assert url_of(grant.entry) == url(number), (url_of(grant.entry), url(number))
            number += 1
        await state.scripts.settle("w", [Settlement(grant.id, SITE, done=True) for grant in reply.grants])
        if number % 50_000 < 1000:
            measured.size()
    assert number == count, f"{number} of {count} came back"
    print(
        f"refill {refilling / count * 1e6:.2f} µs a link; all {number} came back in order; "
        f"peak {measured.peak / 1e3:.0f} KB"
    )


async def _many_domains(state: State, packs: FolderPacks, measured: Measured, count: int) -> None:
    discovery, overflow = Discovery(state.scripts, state.config), Overflow(state, packs)
    for first in range(0, count, 50):
        for source in range(_MANY_SOURCES):
            site = f"site{source}.example"
            if not first:
                await state.redis.hset(state.keys.rates, site, "0.0142")
            await _admit(discovery, [Link(url(number, site)) for number in range(first, first + 50)])
        while await overflow.step():
            pass
    print(f"{_MANY_SOURCES} domains of {count} links: {measured.size() / _MANY_SOURCES / 1e3:.1f} KB a domain")


async def _measure(address: str, folder: Path, count: int) -> None:
    settings = {"REDIS_URL": address, "CRAWL_OVERFLOW_STORE": str(folder), "CRAWL_PAGES_BUDGET_MAX": 0}
    state = State(config.load(settings), "images")
    await state.open()
    with redis.Redis.from_url(address) as client:
        for measure, links in ((_one_domain, count), (_many_domains, 6000)):
            client.flushall()
            fence = await state.scripts.lead("leader", ready=True)
            assert fence is not None
            client.persist(state.keys.pulse)
            await state.scripts.heartbeat("w", join=True, timeout=1e6, max_deliveries=3)
            client.hset(state.keys.rates, SITE, "0.0142857")  # one in 70 s
            await measure(state, FolderPacks(folder), Measured(client), links)
    await state.close()


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            asyncio.run(_measure(server.url, Path(folder) / "packs", count))
        finally:
            server.close()


if __name__ == "__main__":
    main()
