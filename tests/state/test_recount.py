"""The counts of several shards, put right."""

from __future__ import annotations

import json
from typing import Any

from crawlproject import config
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.state.client import State
from crawlproject.state.scripts import NewRequest, Settlement
from crawlproject.state.shards import shard_of
from tests.conftest import Scrapy
from tests.leading import lead

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(12)]


async def test_each_shard_is_recounted_with_what_it_has_sent(cluster_url: str, scrapy: Scrapy) -> None:
    """A request on its way to another shard counts as outstanding where it comes from."""
    state = State(config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}), "images")
    await state.open()
    before: list[bytes | None] = []
    for shard in state.shards:
        await lead(shard)
        await shard.scripts.heartbeat("w", join=True, timeout=60, max_deliveries=3)
    for domain in DOMAINS:
        item = NewRequest(b"\x01\x00\x00\x80", digest_of("", domain), again=False, domain=domain)
        await state.shard_for(domain).scripts.enqueue("w", [item], high_water=99, refuse_unknown=False)
    first = state.shard_for(DOMAINS[0])
    other = next(one for one in DOMAINS if shard_of(one, SHARDS) != first.number)
    reply = await first.scripts.lease(*("w", 1), rooms={}, room=1, horizon=9, dead_maxlen=9)
    [grant] = reply.grants
    elsewhere = Settlement(grant.id, DOMAINS[0], entry=grant.entry, domain=other)
    await first.scripts.settle("w", [elsewhere])
    for shard in state.shards:
        client: Any = shard.redis
        before.append(await client.get(shard.keys.outstanding))
        await client.set(shard.keys.outstanding, 77)
        await shard.scripts.leave("w")
    assert sum(int(number or 0) for number in before) == 12
    client = first.redis
    assert await client.llen(f"{first.keys.outbox_of}{shard_of(other, SHARDS)}") == 1
    done = scrapy("recount", "--json", REDIS_URL=cluster_url, CRAWL_SHARDS=str(SHARDS))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["outstanding"] == {"was": 77 * SHARDS, "is": 12}
    for shard, was in zip(state.shards, before, strict=True):
        client = shard.redis
        assert int(await client.get(shard.keys.outstanding)) == int(was or 0)
    await state.close()
