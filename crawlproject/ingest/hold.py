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


class Hold:
    """Whether a `batch` from a file may be put into the seed list now.

    A batch with seeds of several sources is held back only by what all sources share: held for one source, it
    would hold back the others. A batch for a single source leaves half of the overflow to others.
    """

    def __init__(self, state: State, batch: Sequence[str]) -> None:
        self.state = state
        self.batch = batch
        self._whose: set[tuple[str | None, str]] | None = None

    async def reason(self) -> str:
        """Return what holds the batch back, as a clause; "" when nothing does."""
        spider = self.state.keys.spider
        if await seed_list.is_long(self.state):
            see = scrapy_command("stats", spider=spider)
            return f"the seed list is full: start a worker, or see {see} (seeds_waiting, outstanding)"
        if await seed_list.is_overflow_half_full(self.state):
            if self._whose is None:
                self._whose = _whose(self.batch)
            if sources := await seed_list.sources_with_enough(self.state, self._whose):
                have = "has" if len(sources) == 1 else "have"
                names = " and ".join(sources)
                see = scrapy_command("sources", spider=spider, of=sources)
                return f"{names} {have} enough seeds waiting: see {see}"
        return ""


def _whose(batch: Sequence[str]) -> set[tuple[str | None, str]]:
    """Return the sources that seeds name, each with the registrable domain of its URL."""
    found = set()
    for line in batch:
        with suppress(BadSeed):
            seed = parse_seed(line)
            found.add((seed.source, domain_of_url(seed.url)))
    return found
