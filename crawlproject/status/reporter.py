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
from crawlproject.status.sample import Survey, collect
from crawlproject.status.snapshot import CrawlSample, Snapshot
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


class Report:
    """What is known of one spider's crawl: a sample every five seconds, while this process leads or with `always`.

    Each is compared with the one before, from which rates follow: a new leader's first line comes with its second
    sample. `latest_sample` and `latest` are None before the first, and while another leads, unless `always`.
    The leader logs each.
    """

    def __init__(self, state: State, *, always: bool) -> None:
        self.state = state
        self.always = always
        self.leads = False
        self.latest: Snapshot | None = None
        self._survey = Survey(state, unread=True)
        self._said = False  # that a source of unknown size takes long
        self._loops = Loops(state)

    @property
    def latest_sample(self) -> CrawlSample | None:
        """The last sample."""
        return self._survey.latest

    def start(self) -> None:
        """Start taking samples."""
        self._loops.start(self.step)

    async def stop(self) -> None:
        """Take no more."""
        await self._loops.stop()

    async def step(self) -> None:
        """Take a sample, and compare it with the last one; or wait a little, while another leads."""
        clock = asyncio.get_running_loop().time
        began = clock()
        # Of one shard this is the call itself, and its error.
        answers, _ = await ask_shards(
            [self.state], lambda shard: collect(shard, must_lead=not self.always, most=self._survey.most)
        )
        overview = answers.get(self.state)
        if answers:  # else the first shard, which says who leads, is away: who did last goes on
            self.leads = overview is not None and overview.leads
        if not self.leads and not self.always:
            self.latest = self._survey.latest = None
            await asyncio.sleep(_LOOK_S)
            return
        self.latest = await self._survey.look(overview)
        if self.leads and self.latest is not None:
            logger.info("%s", one_line(self.latest.as_event()))
            rows = [one.row for one in self.latest.sample.sources.values()]
            if not self._said and (remark := said_of_minimum(rows)):
                self._said = True
                logger.warning("%s", printable(remark, 500))
        await asyncio.sleep(max(began + INTERVAL_S - clock(), 0.0))


class Reporter:
    """Runs in every worker and in `scrapy monitor`; the leader's writes the lines, and tells of halts and such.

    `reports` has the crawl of each spider that is reported on, by name, first the one of `state`. A leader,
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
        self.reports = {state.keys.spider: Report(self.state, always=always)}
        self._own = self.reports[state.keys.spider]
        self._is_first = state is self.state
        self._told_of = state.shards if always else (state,)
        self._project = project
        self._only = only
        self._tell_at: dict[State, float] = {}
        self._loops = Loops(state)

    def latest_samples(self) -> dict[str, CrawlSample | None]:
        """Return the latest sample of each spider, None before its first."""
        return {name: report.latest_sample for name, report in self.reports.items()}

    def start(self) -> None:
        """Start reporting; of several shards, the workers of the first one do."""
        if self.always or self._is_first:
            self._own.start()
        self._loops.start(self._find, self._tell)

    async def stop(self) -> None:
        """Stop reporting."""
        await self._loops.stop()
        for report in self.reports.values():
            await report.stop()

    async def find(self) -> None:
        """Report on spiders that have come; on none but the own one where another process leads."""
        if self.always or self._own.leads:
            names = await present_spiders(self.state, self._project) if self._only is None else self._only
            for name in names:
                if name not in self.reports:
                    self.reports[name] = Report(self.state.beside(name), always=self.always)
                    self.reports[name].start()
        else:
            for name in [name for name, report in self.reports.items() if report is not self._own]:
                await self.reports.pop(name).stop()

    async def _find(self) -> None:
        await asyncio.sleep(_LOOK_S)
        await self.find()

    async def _tell(self) -> None:
        """Tell the log of halts and such, of the shards that this process leads."""
        now = asyncio.get_running_loop().time()
        await ask_shards([shard for shard in self._told_of if self._tell_at.get(shard, 0.0) <= now], self._tell_of)
        await asyncio.sleep(_TELL_S)

    async def _tell_of(self, shard: State) -> None:
        """Tell of what has been added to the audit trail of a shard."""
        while entries := await untold(shard, _TOLD):
            for _, text in entries:
                with suppress(ValueError, TypeError, KeyError, RecursionError):  # not written by crawlproject
                    event = json.loads(text)
                    logger.warning("%s", one_line(event), extra={"source": event["source"]})
            await note_told(shard, [entry for entry, _ in entries])
        if entries is None:  # another leads
            self._tell_at[shard] = asyncio.get_running_loop().time() + _LOOK_S


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
