"""Reports every five seconds what the crawl is doing: a line, and the snapshot that everything else shows."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import redis

from crawlproject.runtime import Loops
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_shards
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import CrawlSample
from crawlproject.status.source_status import said_of_minimum
from crawlproject.streams.streams import note_told, untold
from crawlproject.texts import one_line, printable

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0  # between two lines
STALE_S = 3 * INTERVAL_S  # after which a snapshot is not shown as the present
_LOOK_S = 1.0  # between two checks of who leads
_TELL_S = 0.4  # between two looks at the audit trail
_TOLD = 200  # of its entries a call
_MOST_SPIDERS = 16  # those whose workers were there last
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # of another's spider: it is copied into shells


class Reporter:
    """Runs in every worker and in `scrapy monitor`; the leader's writes the lines, and tells of halts and such.

    `surveys` has the crawl of each spider that is reported on, by name, first the one of `state`. A leader,
    whichever spider it crawls, reports on all that have something in the namespace (`present_spiders`; `project`
    are those of this project), or on `only`. With `always` the reports go on while another process leads.
    """

    def __init__(
        self,
        state: State,
        project: Sequence[str] = (),
        *,
        always: bool = False,
        only: Sequence[str] | None = None,
    ) -> None:
        self.state = state.shards[0]  # its leader reports on all shards
        self.always = always
        self.leads = False
        self.surveys = {state.keys.spider: Survey(self.state)}
        self._said: set[str] = set()  # of which spiders: that a source of unknown size takes long
        self._is_first = state is self.state
        self._told_of = state.shards if always else (state,)
        self._project = project
        self._only = only
        self._loops = Loops(state)

    def latest_samples(self) -> dict[str, CrawlSample | None]:
        """Return the latest sample of each spider, None before its first."""
        return {name: survey.latest for name, survey in self.surveys.items()}

    def start(self) -> None:
        """Start reporting; of several shards, the workers of the first one do."""
        self._loops.start(*([self._report] if self.always or self._is_first else []), self._tell)

    async def stop(self) -> None:
        """Stop reporting."""
        await self._loops.stop()

    async def find(self) -> None:
        """Report on spiders that have come, too."""
        names = await present_spiders(self.state, self._project) if self._only is None else self._only
        for name in names:
            if name not in self.surveys:
                self.surveys[name] = Survey(self.state.beside(name))

    async def _report(self) -> None:
        """Report on all spiders every five seconds; while another process leads, wait a little."""
        clock = asyncio.get_running_loop().time
        began = clock()
        answers, _ = await ask_shards([self.state], State.leads)
        self.leads = answers.get(self.state, self.leads)  # while that shard is away, who led last goes on
        if not self.leads and not self.always:
            self.surveys = {self.state.keys.spider: Survey(self.state)}
            await asyncio.sleep(_LOOK_S)
            return
        looks = [self._look(name, survey) for name, survey in self.surveys.items()]
        for fault in filter(None, await asyncio.gather(self.find(), *looks, return_exceptions=True)):
            raise fault
        await asyncio.sleep(max(began + INTERVAL_S - clock(), 0.0))

    async def _look(self, spider: str, survey: Survey) -> None:
        """Take a sample of a spider's crawl; who leads logs what has been done since the last one."""
        made = await survey.look()
        if not self.leads or made is None:
            return
        logger.info("%s", one_line(made.as_event()))
        if spider not in self._said and (remark := said_of_minimum(made.sample.sources.values())):
            self._said.add(spider)
            logger.warning("%s", printable(remark, 500))

    async def _tell(self) -> None:
        """Tell the log of halts and such, of the shards that this process leads."""
        await ask_shards(self._told_of, self._tell_of)
        await asyncio.sleep(_TELL_S)

    async def _tell_of(self, shard: State) -> None:
        """Tell of what has been added to the audit trail of a shard."""
        while entries := await untold(shard, _TOLD):
            for _, text in entries:
                with suppress(ValueError, TypeError, KeyError, RecursionError):  # not written by crawlproject
                    event = json.loads(text)
                    logger.warning("%s", one_line(event), extra={"source": event["source"]})
            await note_told(shard, [entry for entry, _ in entries])


async def present_spiders(state: State, project: Sequence[str] = ()) -> list[str]:
    """Return the spiders that have something in this namespace: seeds, requests, or totals of what was done.

    Those of `project` come first, in that order; then others that share its Redis, and have had workers.

    Raises:
        redis.ConnectionError: no shard answers.
        REDIS_TROUBLE: of the only shard.

    """
    found, away = await ask_shards(state.shards, lambda shard: _present_in(shard, project))
    if not found:
        raise redis.ConnectionError(f"no shard answers: {next(iter(away.values()))}")
    names = dict.fromkeys(name for present in found.values() for name in present)
    return [name for name in project if name in names] + sorted(names.keys() - set(project))


async def _present_in(state: State, project: Sequence[str]) -> list[str]:
    """Return those of one shard."""
    client: Any = state.redis
    asked = await client.zrevrange(state.keys.spiders, 0, _MOST_SPIDERS - 1)
    others = sorted(name.decode(errors="replace") for name in asked)
    names = [*project, *filter(_NAME.fullmatch, others)]
    names = list(dict.fromkeys(names))
    async with client.pipeline(transaction=False) as pipe:
        for name in names:
            keys = replace(state.keys, spider=name)
            pipe.exists(keys.seeds, keys.counters, keys.totals)
        found = await pipe.execute()
    return [name for name, number in zip(names, found, strict=True) if number]
