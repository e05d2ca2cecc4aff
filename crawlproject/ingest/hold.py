"""What holds a batch of seeds back: a long seed list, or a source with enough seeds waiting."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from crawlproject.errors import BadSeed
from crawlproject.frontier import seed_list
from crawlproject.frontier.seeds import parse_seed
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import State
from crawlproject.texts import scrapy_command


async def why_held(state: State, batch: Sequence[str]) -> str:
    """Return what holds a batch from a file back, as a clause; "" when it may be put into the seed list now.

    A batch with seeds of several sources is held back only by what all sources share: held for one source, it
    would hold back the others. A batch for a single source leaves half of the overflow to others.
    """
    spider = state.keys.spider
    if await seed_list.is_long(state):
        see = scrapy_command("stats", spider=spider)
        return f"the seed list is full: start a worker, or see {see} (seeds_waiting, outstanding)"
    if not await seed_list.is_overflow_half_full(state):
        return ""
    whose = set()
    for line in batch:
        with suppress(BadSeed):
            seed = parse_seed(line)
            whose.add((seed.source, domain_of_url(seed.url)))
    sources = await seed_list.sources_with_enough(state, whose)
    if not sources:
        return ""
    have, see = "has" if len(sources) == 1 else "have", scrapy_command("sources", spider=spider, of=sources)
    return f"{' and '.join(sources)} {have} enough seeds waiting: see {see}"
