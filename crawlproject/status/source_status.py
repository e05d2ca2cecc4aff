"""The status of a source and the reason for it, as every table, line and chart shows them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from crawlproject.config import Config
from crawlproject.frontier.contents import count_leases
from crawlproject.politeness.outcomes import SITE_ERRORS
from crawlproject.sources.rates import MINIMUM_RATE, Limit, limit_of
from crawlproject.state.calls import Budget, Pause, SourceStatus
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_for
from crawlproject.texts import counted, scrapy_command

SUCCESSES = ("thumbnails", "probes", "pages", "responses")  # counts: what a spider is for
LINK_RESULTS = (
    "admitted",
    "known",
    "over_budget",
    "without_room",
    "refused",
    "excluded",
)  # what becomes of links; counts: links_ +

_PAGES = "pages"  # the spider whose links have budgets
_UNKNOWN_SIZE = "minimum: its size is unknown"  # how the reason for such a rate begins
_BY_SIZE = "by size"  # likewise
_LONG_S = 600.0  # of work at the minimum rate: a person would rather be told
_EXAMPLE_RPS = "5"
_BATCH = 100  # sources a call, which takes Redis some 2 ms


class SourceRow(NamedTuple):
    """The status of a source in the words of the contract; rates in requests a second, times in seconds.

    `waiting` are requests beyond its share of the frontier, `spilled` those of them that are in
    CRAWL_OVERFLOW_STORE. `successful` counts thumbnails, pages, link rot, and of other spiders responses (2xx);
    `items` are those that their callbacks have yielded.
    `eta_s` is 0 without work, None when nothing goes out. `hosts` are those that its results of the last minutes
    came from (eight, and None for all others), each with its `successful` and `errors`. `links`: how many links
    that belong to it were found, by what became of them. `budget`: how many it has `admitted`, `poor` ones among
    them, and may admit (`allowed`, None without a bound); None where links have no budget. `delay_s` is what the
    spider keeps between two of its requests to the source, besides the rate (0: nothing). `status` is what all
    of that is made of.
    """

    status: SourceStatus
    source: str
    rate_limit: float
    effective_rate: float
    reason: str
    queued: int
    waiting: int
    delayed: int
    in_flight: int
    successful: int
    failed: int
    state: str
    eta_s: float | None
    next_slot_s: float
    hosts: Sequence[Mapping[str, Any]] = ()
    spilled: int = 0
    links: Mapping[str, int] = MappingProxyType({})
    delay_s: float = 0.0
    items: int = 0
    budget: Mapping[str, int | None] | None = None

    def public(self) -> dict[str, Any]:
        """Return what people and programs are told of it: all but `status`."""
        said = self._asdict()
        del said["status"]
        return said

    @property
    def errors(self) -> int:
        """Attempts that failed at the site or on the way there, retries included."""
        return sum(self.status.counts[f"error_{kind}"] for kind in SITE_ERRORS)

    @property
    def work(self) -> int:
        """Its requests, wherever they wait, and in flight."""
        return self.queued + self.waiting + self.delayed + self.in_flight

    @property
    def trouble(self) -> int:
        """What keeps it from its limit: 3 its circuit; 2 its circuit but for probes; 1 a lower rate; 0 nothing.

        An excluded source is in no trouble.
        """
        if self.state == "excluded":
            return 0
        if self.state == "closed":
            return int(self.effective_rate < self.rate_limit)
        return 2 if self.state == "half_open" else 3


class Hold(NamedTuple):
    """Why a source is held, "" when it is not, and for how many seconds: None until somebody acts.

    A half-open circuit has a reason and 0 seconds: probes go out.
    """

    reason: str
    seconds: float | None


async def sample_sources(
    state: State, sources: list[str], away: dict[State, str] | None = None
) -> AsyncIterator[SourceRow]:
    """Yield the status of each of `sources`, in order.

    Those of a shard that does not answer are left out, and what is wrong with it is put into `away`.

    Raises:
        redis.ConnectionError: a shard does not answer, and `away` is None.

    """
    if state.count == 1:
        async for one in sample_sources_of_shard(state, sources):
            yield one
        return

    async def read(shard: State, names: list[str]) -> dict[str, SourceRow]:
        return {one.source: one async for one in sample_sources_of_shard(shard, names)}

    found = await ask_for(state, sources, read, away)
    for source in sources:
        if (row := found.get(state.shard_for(source), {}).get(source)) is not None:
            yield row


async def sample_sources_of_shard(
    state: State, sources: list[str], leases: Counter[str] | None = None
) -> AsyncIterator[SourceRow]:
    """Yield the same of `sources` of one shard.

    Reads a batch at a time. `leases` is by `count_leases`.
    """
    leases = await count_leases(state) if leases is None else leases
    for first in range(0, len(sources), _BATCH):
        names = sources[first : first + _BATCH]
        for status in await state.scripts.inspect(names):
            budget = _budget(state.config, status) if state.keys.spider == _PAGES else None
            yield _row(status, leases[status.source], budget)


def _budget(config: Config, status: SourceStatus) -> dict[str, int | None]:
    """Return the budget of a source for links; see the Lua module `budgets`."""
    admitted, poor = status.spent
    most = config.pages_budget_max
    budget = Budget(most=most)
    allowed = min(budget.base + budget.per_page * status.counts["good_pages"], most) if most else None
    return {"admitted": admitted, "poor": poor, "allowed": allowed}


def _row(status: SourceStatus, leased: int, budget: Mapping[str, int | None] | None) -> SourceRow:
    work, hold, done = status.queued + status.waiting + status.delayed + leased, hold_of(status), status.counts
    return SourceRow(
        status=status,
        source=status.source,
        rate_limit=status.limit,
        effective_rate=status.effective,
        reason="; ".join(
            part for part in (_rate_reason(status), hold.reason, paced(status), _failing_host(status)) if part
        ),
        queued=status.queued,
        waiting=status.waiting,
        delayed=status.delayed,
        in_flight=leased,
        successful=sum(done[count] for count in (*SUCCESSES, "link_rot")),
        failed=done["failed"],
        state=status.state,
        eta_s=0.0 if not work else None if hold.seconds is None else hold.seconds + work * interval_of(status),
        next_slot_s=round(max(status.next_slot - status.now, status.paced_until - status.now, 0.0), 6),
        hosts=status.hosts,
        spilled=status.spilled,
        links={name: number for name in LINK_RESULTS if (number := done[f"links_{name}"])},
        delay_s=status.delay,
        items=done["items"],
        budget=budget,
    )


def interval_of(status: SourceStatus) -> float:
    """Return the seconds between two requests of this spider to a source whose rate is above 0."""
    return max(1 / status.effective, status.delay)


def paced(status: SourceStatus) -> str:
    """Say when the spider's own delay lets the next request out; "" while it does not hold it back."""
    seconds = math.ceil(status.paced_until - status.now)
    return f"paced: next page in {seconds} s" if seconds > 0 and status.queued + status.delayed > 0 else ""


def _failing_host(status: SourceStatus) -> str:
    """Say which host a source's errors come from, where that is one of several; others may be meant by it."""
    if not status.failing_host:
        return ""
    return f"all errors of the last minutes at {status.failing_host}, one of {len(status.hosts)} hosts"


def said_of_links(links: Mapping[str, int]) -> str:
    """Return what became of links, in a few words; "" without any."""
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in links.items())


def seen_on(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return the hosts of a source in a line, the most frequent first; "" without any."""
    ordered = sorted(hosts, key=lambda one: (one["host"] is None, -one["successful"] - one["errors"]))
    parts = []
    for one in ordered:
        errors = f" ({one['errors']} errors)" if one["errors"] else ""
        parts.append(f"{one['host'] or 'others'} {one['successful'] + one['errors']}{errors}")
    return ", ".join(parts)


def hold_of(status: SourceStatus) -> Hold:
    """Return what holds a source, regardless of its rate."""
    if status.state == "excluded":
        return Hold(f"excluded: see {scrapy_command('excluded')}", None)
    if status.state == "halted":
        return Hold(f"halted until {scrapy_command('resume', of=[status.source])}", None)
    if status.effective <= 0:
        return Hold(
            "nothing goes out at a rate of 0" if status.limit <= 0 else "robots.txt delay unreadable", None
        )
    seconds = max(status.held_until - status.now, 0.0)
    if status.state == "open":
        more = f"for {math.ceil(seconds)} s more" if seconds else "until its probes go out"
        return Hold(f"circuit open {more}", seconds)
    held = f"held for {math.ceil(seconds)} s (Retry-After)" if seconds else ""
    probes = "circuit half open: only a few probes go out" if status.state == "half_open" else ""
    return Hold("; ".join(part for part in (held, probes) if part), seconds)


def _rate_reason(status: SourceStatus) -> str:
    """Return why the effective rate is what it is."""
    override = None if status.override is None else limit_of(status.override)
    if override is not None:
        wanted, reason = override, "by override"
    elif status.by_size is not None:
        wanted, reason = Limit(status.by_size), _BY_SIZE
    else:
        wanted, reason = Limit(MINIMUM_RATE), _UNKNOWN_SIZE
    if override is None and status.override is not None:
        reason += f" (override {status.override[:40].decode(errors='replace')!r} is not a rate)"
    in_force = Limit(status.limit, status.over_robots)
    if wanted != in_force:
        over = " over robots.txt" if wanted.over_robots else ""
        reason += f", {wanted.rps:g}{over} as soon as the leader has set it"
    if status.effective < status.limit * status.factor and status.robots_delay:
        return f"robots.txt asks for {status.robots_delay:g} s between requests"
    if status.over_robots:
        asked = f" that asks for {status.robots_delay:g} s between requests" if status.robots_delay else ""
        reason += f", over a robots.txt{asked}"
    if status.factor < 1:
        reason += f", slowed to {status.factor * 100:.3g} % by {status.why}"
    return reason


def said_of_minimum(rows: Iterable[SourceRow], option: str = "") -> str:
    """Say that work takes long because the size of its source is unknown, and the remedy; "" if it does not.

    Of several such sources it names the one with the most work. `option` is that of the command which sets rates
    from the start: who has it wants to hear of sources whose size is known to be small, too.
    """
    # A source that is halted, or whose robots.txt asks for a delay, has something else in its way.
    slow = [
        row
        for row in rows
        if (row.eta_s or 0) > _LONG_S and (row.reason.startswith(_UNKNOWN_SIZE) or (option and _is_small(row)))
    ]
    if not slow:
        return ""
    row = max(slow, key=lambda row: (row.work, row.source))
    others = f" ({counted(len(slow) - 1, 'more source')} like it)" if len(slow) > 1 else ""
    size = f"{row.source} is small by the catalogue" if _is_small(row) else f"the size of {row.source} is unknown"
    why = f"{size}, so it gets {MINIMUM_RATE:g} requests a second"
    if is_paced := row.delay_s > 1 / MINIMUM_RATE:
        why = f"{row.source} gets a request every {row.delay_s:g} s (CRAWL_PAGES_DELAY, for all sources)"
    first = "CRAWL_PAGES_DELAY=0 for all workers, and " if is_paced else ""
    if option:
        first += f"{option} {row.source}={_EXAMPLE_RPS} at the start, or now: "
    return (
        f"{why}, and its {row.work} requests take {duration(row.eta_s)}{others}; if it is yours, or its owner "
        f"agrees: {first}{scrapy_command('rate', of=[row.source, _EXAMPLE_RPS])}"
    )


def _is_small(row: SourceRow) -> bool:
    return row.reason.startswith(_BY_SIZE) and row.rate_limit <= MINIMUM_RATE


async def pause(state: State) -> Pause:
    """Return why nothing goes out to any source at present."""
    return await state.scripts.pause_reason(timeout=state.config.heartbeat_timeout)


def duration(seconds: float | None) -> str:
    """Return a span of time for people."""
    if seconds is None:
        return "never"
    return f"{seconds / 86400:.3g} days" if seconds >= 172_800 else str(timedelta(seconds=math.ceil(seconds)))


def digits(value: float | None) -> str:
    """Return a number for people: three significant digits, or all those before the point; `-` for None."""
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
