"""What a queued request takes of Redis' memory, by how lists are compressed, and what that costs.

    python -m benchmarks.queued_bytes [REQUESTS]

Both in one run: an embedded server with `list-compress-depth 0` and the same with 1, each with the same requests
in lists as the frontier has them, without a caption and with one of 200 bytes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import redis

from crawlproject.frontier import codec
from crawlproject.frontier.seeds import seed_of
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state import embedded

_SOURCES = 20
_BATCH = 200
_WORDS = ("a", "the", "boat", "house", "old", "red", "near", "river", "with", "view", "of", "from", "street")


def entries(count: int, caption: int) -> list[bytes]:
    """Return stored requests with captions of that many bytes, 0 for none."""
    chance, spider = random.Random(7), ImagesSpider()
    found = []
    for number in range(count):
        text = " ".join(chance.choices(_WORDS, k=caption // 3 + 1))[:caption]
        folder, name = chance.randrange(1000), f"{chance.randrange(1 << 40):010x}"
        seed: dict[str, Any] = {
            "url": f"https://images.museum{number % _SOURCES}.example/collection/{folder}/{name}_large.jpg",
            "uuid": str(uuid.UUID(int=chance.getrandbits(128))),
            "source": f"museum{number % _SOURCES}",
        }
        if caption:
            seed["extra"] = {"TEXT": text}
        found.append(codec.encode(spider.request_for(seed_of(seed)), spider))
    return found


def measured(client: redis.Redis, depth: int, requests: list[bytes]) -> tuple[float, float]:
    """Return the bytes that a request takes, and the microseconds that it costs to queue and take one."""
    client.flushall()
    client.config_set("list-compress-depth", depth)
    before = int(client.info("memory")["used_memory"])
    began = time.perf_counter()
    for first in range(0, len(requests), _BATCH):
        client.rpush(f"queue:{first // _BATCH % _SOURCES}", *requests[first : first + _BATCH])
    took = time.perf_counter() - began
    size = (int(client.info("memory")["used_memory"]) - before) / len(requests)
    began = time.perf_counter()
    for first in range(0, len(requests), _BATCH):
        client.lpop(f"queue:{first // _BATCH % _SOURCES}", _BATCH)
    return size, (took + time.perf_counter() - began) / len(requests) * 1e6


def main(count: int) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "redis"
        client = redis.Redis.from_url(embedded.ensure(place))
        try:
            client.config_set("appendonly", "no")
            print(f"{count} requests\n\ncaption   stored   depth 0             depth 1")
            for caption in (0, 200):
                requests = entries(count, caption)
                stored = sum(map(len, requests)) / count
                (plain, fast), (small, slow) = (measured(client, depth, requests) for depth in (0, 1))
                print(
                    f"{caption:7}   {stored:6.1f}   {plain:6.1f} B {fast:5.2f} us   {small:6.1f} B {slow:5.2f} us"
                    f"   ({small / plain:.0%} of the bytes, {slow - fast:+.2f} us)"
                )
        finally:
            client.close()
            embedded.stop(place)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
