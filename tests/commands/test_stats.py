"""`scrapy stats`: what all workers together have done."""

from __future__ import annotations

import json

from crawlproject.frontier.codec import digest_of
from crawlproject.state.calls import NewRequest, Settlement
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy
from tests.state.calls.calls import within


async def test_the_totals_are_one_json_document(scrapy: Scrapy, frontier: Frontier) -> None:
    state, scripts = frontier.state, frontier.scripts
    await scripts.set_rates(frontier.fence, [("museum", 200.0, 200.0), ("flickr", 0.25, None)], {})
    requests = [
        NewRequest(b"\x01\x00\x00%d" % n, digest_of("", str(n % 5)), again=False, source="museum")
        for n in range(6)
    ]
    await within(scripts, high_water=1000).enqueue("w", requests)
    done, rotten, dead, _ = await frontier.lease(4)
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
    museum = {"fetched": 3, "thumbnails": 1, "link_rot": 1, "failed": 1, "bytes": 3_000_000_000}
    found = json.loads(said.stdout)
    sources = found.pop("sources")
    assert {name: value for name, value in found.items() if value} == museum | {
        "workers": 1,
        "seeds_waiting": 2,
        "outstanding": 2,
        "leased": 1,
        "dead_letters": 1,
        "admitted": 5,
        "duplicates": 1,
        "not_html": {"pdf": 2},
        # interpolated between 0.15 and 0.25, and between 0.4 and 0.6
        **{"latency_p50_s": 0.2, "latency_p95_s": 0.245, "latency_p99_s": 0.249},
        **{"fetch_p50_s": 0.5, "fetch_p95_s": 0.59, "fetch_p99_s": 0.598},
        **{"parse_p50_s": 0.0015, "parse_p95_s": 0.00195, "parse_p99_s": 0.00199},
    }
    assert {name: value for name, value in sources["museum"].items() if value} == museum | {
        **{"rate_limit": 200.0, "fetch_p50_s": 0.5, "fetch_p99_s": 0.598},
    }
    assert {name: value for name, value in sources["flickr"].items() if value} == {"rate_limit": 0.25}
