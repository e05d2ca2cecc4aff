"""`scrapy stats`: what all workers together have done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from crawlproject.frontier.codec import digest_of
from crawlproject.state.calls import NewRequest, Settlement
from crawlproject.state.client import State
from crawlproject.status.snapshot import LINKS
from tests.settings_of_functions import within

if TYPE_CHECKING:
    from tests.conftest import Scrapy


async def test_the_totals_are_one_json_document(scrapy: Scrapy, state: State) -> None:
    scripts = state.scripts
    fence = await scripts.lead("leader", ready=True)
    assert fence is not None
    await scripts.set_rates(fence, [("museum", 200.0, 200.0), ("flickr", 0.25, None)], {})
    await scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)
    requests = [
        NewRequest(b"\x01\x00\x00%d" % n, digest_of("", str(n % 5)), again=False, source="museum")
        for n in range(6)
    ]
    await within(scripts, high_water=1000).enqueue("w", requests)
    reply = await scripts.lease("w", 4, rooms={}, room=9, horizon=60.0)
    done, rotten, dead, _ = (grant.id for grant in reply.grants)
    image = ("image_metadata_updates", "{}")
    counts = {"fetched": 1, "thumbnails": 1, "bytes": 3_000_000_000}
    await scripts.settle(
        "w",
        [
            Settlement(
                done, "museum", event=image, counts=counts, status="200", latency=0.2, fetch_s=0.5, parse_s=0.0012
            ),
            Settlement(
                rotten, "museum", event=("link_rot", "{}"), counts={"fetched": 1, "link_rot": 1, "not_html_pdf": 2}
            ),
            Settlement(dead, "museum", b"\x01\x00\x00x", dead="status 403", counts={"fetched": 1, "failed": 1}),
        ],
    )
    await state.redis.lpush(state.keys.seeds, "http://a/", "http://b/")

    said = scrapy("stats", "--json")
    assert (said.returncode, said.stderr) == (0, "")
    counted = ("fetched", "thumbnails", "probes", "pages", "responses", "items", "link_rot", "failed", "retried")
    nothing = dict.fromkeys((*counted, "bytes", "excluded", "purged"), 0)
    museum = nothing | {"fetched": 3, "thumbnails": 1, "link_rot": 1, "failed": 1, "bytes": 3_000_000_000}
    assert json.loads(said.stdout) == museum | {
        "workers": 1,
        "seeds_waiting": 2,
        "outstanding": 2,
        "leased": 1,
        "dead_letters": 1,
        "admitted": 5,
        "duplicates": 1,
        **dict.fromkeys(("refused", "deliveries_lost", "mended", "events_trimmed", "refusals_not_kept"), 0),
        **dict.fromkeys(("waiting", "overflow_lost", "sitemaps", "sitemaps_left_out"), 0),
        **dict.fromkeys(("revisits", "revisits_unchanged", *LINKS), 0),
        "not_html": {"pdf": 2},
        # interpolated between 0.15 and 0.25, and between 0.4 and 0.6
        **{"latency_p50_s": 0.2, "latency_p95_s": 0.245, "latency_p99_s": 0.249},
        **{"fetch_p50_s": 0.5, "fetch_p95_s": 0.59, "fetch_p99_s": 0.598},
        **{"parse_p50_s": 0.0015, "parse_p95_s": 0.00195, "parse_p99_s": 0.00199},
        "sources": {
            "flickr": nothing | {"rate_limit": 0.25, "fetch_p50_s": None, "fetch_p99_s": None},
            "museum": museum | {"rate_limit": 200.0, "fetch_p50_s": 0.5, "fetch_p99_s": 0.598},
        },
    }
