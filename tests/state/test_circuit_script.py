"""Circuits, by the scripts on a real Redis: what trips them, what they hold back, what ends it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from crawlproject import controls
from crawlproject.config import CircuitRules
from crawlproject.controls import halt, set_rate
from crawlproject.models import Lease
from crawlproject.state.calls import LeaseReply, Scripts, Settlement
from crawlproject.state.client import State
from tests.robots_copies import keep_copy
from tests.standing_clock import StandingClock
from tests.state.calls.calls import change_packed, entry, join, lead, packed_at, put, slot_of, within

pytestmark = pytest.mark.usefixtures("clock")

RULES = CircuitRules(open=0.3, open_max=1.0)
MUSEUM = "museum"
CIRCUIT = "crawl:circuit:museum"


class Crawl:
    """A leader and a worker at one source of 200 rps, as calls of scripts."""

    def __init__(self, state: State, rules: CircuitRules = RULES) -> None:
        self.state = state
        self.scripts = Scripts(state.redis, state.keys, state.clock, circuit=rules.packed())
        self.number = 0
        self.seen = 0  # entries of the audit trail

    @property
    def db(self) -> Any:
        return self.state.redis

    async def start(self, rate: float = 200.0, options: dict[str, str] | None = None) -> None:
        fence = await lead(self.state)
        self.fence = fence
        await self.scripts.set_rates(fence, [(MUSEUM, rate, rate)], {}, options)
        await join(self.state)

    async def feed(self, count: int) -> None:
        first, self.number = self.number, self.number + count
        await put(self.state, [entry(str(number)) for number in range(first, self.number)])

    async def lease(self, want: int = 100, horizon: float = 10.0) -> LeaseReply:
        return await self.scripts.lease("w", want, rooms={}, room=1000, horizon=horizon)

    async def settle(self, grants: list[Lease], results: str, **more: Any) -> None:
        """Settle a grant for each character: `.` fine, `x` an error, `o` no sample, `-` given back."""
        sent = []
        for grant, result in zip(grants, results, strict=True):
            one = Settlement(grant.id, MUSEUM, grant.entry)
            if result != "-":
                fine = {".": True, "x": False, "o": None}[result]
                status = {".": "200", "x": "500", "o": "robots"}[result]
                one = replace(one, event=("link_rot", "{}"), status=status, fine=fine, **more)
            sent.append(one)
        await self.scripts.settle("w", sent)

    async def crawl(self, results: str, **more: Any) -> None:
        """Feed, lease and settle one after the other, as long as the source is given out."""
        await self.feed(len(results))
        reply = await self.lease(len(results))
        await self.settle(reply.grants, results[: len(reply.grants)], **more)

    async def end_period(self) -> None:
        """Have the open period be over, in place of waiting for it."""
        await change_packed(self.db, CIRCUIT, ends=1)

    async def circuit_state(self) -> str:
        return (await self.scripts.inspect([MUSEUM]))[0].state

    async def events(self, stream: str) -> list[dict[str, Any]]:
        return [json.loads(fields[b"event"]) for _, fields in await self.db.xrange(stream)]

    async def watch(self) -> int:
        return await self.scripts.watch(self.fence)

    async def changes(self) -> list[str]:
        """Return what the audit trail has told since the last call, without what led to it."""
        seen, self.seen = self.seen, await self.db.xlen("crawl:audit")
        told = (await self.events("crawl:audit"))[seen:]
        return [event["event"].removeprefix("crawl_") for event in told]


@pytest_asyncio.fixture
async def crawl(state: State) -> Crawl:
    one = Crawl(state)
    await one.start()
    return one


@pytest.mark.parametrize(
    ("results", "then"),
    [
        ("xxxxx", "closed"),  # not more than 5 samples
        ("xxxxxx", "open"),
        (".....x", "open"),
        ("." * 9 + "x", "closed"),  # 10 %, not above
        ("." * 18 + "xxx", "open"),
        ("x" + "." * 9, "open"),  # it opened on the way
        ("xxxxx" + "o" * 20, "closed"),
        ("xxxxx" + "-" * 20, "closed"),
    ],
)
async def test_opens_on_more_than_five_samples_and_a_tenth_of_errors(
    crawl: Crawl, results: str, then: str
) -> None:
    await crawl.crawl(results)
    assert await crawl.circuit_state() == then


async def test_grants_nothing_from_the_settle_that_tripped_it(crawl: Crawl) -> None:
    await crawl.feed(300)
    first, second = await crawl.lease(100), await crawl.lease(100)
    await crawl.settle(first.grants[:10], "x" * 10)
    assert (await crawl.lease()).grants == []
    assert (await crawl.scripts.acquire(source=MUSEUM)).slot is None
    assert await crawl.db.smembers("crawl:temp_halted") == {MUSEUM.encode()}
    # what was in flight is noted, and opens and closes nothing
    await crawl.settle(second.grants, "xxxxxxxxx." * 10)
    assert await crawl.circuit_state() == "open"
    assert len(await crawl.events("crawl:crawl_halted")) == 1
    assert await crawl.db.llen("crawl:statuslast50req:museum") == 50


async def test_says_why_it_halted_with_the_counts_of_statuses(crawl: Crawl) -> None:
    await crawl.crawl("....xxx")
    [event] = await crawl.events("crawl:crawl_halted")
    assert event.keys() == {"event", "source", "type", "msg", "reason", "by", "time"}
    assert (event["event"], event["source"], event["type"]) == ("crawl_halted", MUSEUM, "temporary")
    assert event["msg"] == 'museum tripped temporary halt. Response codes: {"200": 4, "500": 2}'
    assert (event["reason"], event["by"]) == ("2 errors of 6 requests in 60 s", "worker w")
    seconds, micros = await crawl.db.time()
    assert abs(datetime.fromisoformat(event["time"]).timestamp() - seconds - micros / 1e6) < 5


async def test_lets_a_few_probes_out_and_closes_when_they_go_well(crawl: Crawl) -> None:
    await crawl.crawl("xxxxxx")
    await crawl.feed(50)
    await crawl.end_period()
    probes = [grant for want in (1, 1, 100, 100) for grant in (await crawl.lease(want)).grants]
    assert len(probes) == 3
    assert await crawl.circuit_state() == "half_open"
    assert await crawl.db.pttl(CIRCUIT) > 0  # for ever, it would be one of those that the leader looks at
    assert await crawl.db.scard("crawl:temp_halted") == 0
    assert (await crawl.lease()).grants == []
    await crawl.settle(probes[:2], "..")
    assert (await crawl.lease()).grants == []
    await crawl.settle(probes[2:], ".")
    assert await crawl.circuit_state() == "closed"
    [event] = await crawl.events("crawl:crawl_resumed")
    assert (event["source"], event["type"]) == (MUSEUM, "temporary")
    assert len((await crawl.lease()).grants) > 3


async def test_opens_for_twice_as_long_when_a_probe_fails_up_to_the_cap(
    state: State, clock: StandingClock
) -> None:
    crawl = Crawl(state, replace(RULES, open=0.15, open_max=0.5))
    await crawl.start()
    await crawl.crawl("xxxxxx")
    await crawl.feed(50)
    for seconds in (0.15, 0.3, 0.5, 0.5):
        [status] = await crawl.scripts.inspect([MUSEUM])
        assert status.held_until - status.now == pytest.approx(seconds)
        clock.advance(seconds - 0.01)
        assert (await crawl.lease()).grants == []
        clock.advance(0.01)
        probe, *others = (await crawl.lease()).grants
        await crawl.settle([probe], "x")
        await crawl.settle(others, "." * len(others))  # too late to decide anything


async def test_a_probe_that_comes_back_unsent_or_is_lost_with_its_worker_frees_its_place(
    crawl: Crawl, clock: StandingClock
) -> None:
    await crawl.crawl("xxxxxx")
    await crawl.feed(10)
    await crawl.end_period()
    await crawl.settle((await crawl.lease()).grants, "-o-")
    assert len((await crawl.lease()).grants) == 3
    await crawl.scripts.leave("w")
    await join(crawl.state)
    assert len((await crawl.lease()).grants) == 3
    clock.advance(20)
    await join(crawl.state, "v")
    clock.advance(10)
    beat = await crawl.scripts.heartbeat("v", join=False, timeout=30, max_deliveries=3)
    assert beat.lost == ("w", 3, 0)
    await join(crawl.state)
    assert len((await crawl.lease()).grants) == 3


async def test_probes_that_are_answered_without_a_sample_close_it(crawl: Crawl) -> None:
    await crawl.crawl("xxxxxx")
    await crawl.feed(10)
    await crawl.end_period()
    redirected, opted_out, again = (await crawl.lease()).grants
    answers = [
        Settlement(redirected.id, "elsewhere", redirected.entry, answered=True),
        Settlement(opted_out.id, MUSEUM, opted_out.entry, dead="opt-out", status="200", answered=True),
        Settlement(again.id, MUSEUM, again.entry, answered=True),
    ]
    await crawl.scripts.settle("w", answers[:2])
    assert await crawl.circuit_state() == "half_open"
    await crawl.scripts.settle("w", answers[2:])
    assert await crawl.circuit_state() == "closed"


async def test_fifty_errors_in_a_row_halt_until_an_operator_acts(state: State, clock: StandingClock) -> None:
    crawl = Crawl(state, replace(RULES, samples=1000))
    await crawl.start()
    await crawl.crawl("." + "x" * 49)
    assert await crawl.circuit_state() == "closed"
    await crawl.crawl("x")
    assert await crawl.circuit_state() == "halted"
    assert await crawl.db.smembers("crawl:halted") == {b"museum"}
    [event] = await crawl.events("crawl:crawl_halted")
    assert (event["type"], event["reason"]) == ("permanent", "50 errors in a row")
    assert event["msg"] == 'museum tripped permanent halt. Response codes: {"500": 50}'
    await crawl.feed(10)
    clock.advance(86_400)
    await crawl.watch()
    assert (await crawl.lease()).grants == []


async def test_errors_in_flight_at_a_trip_are_counted_too(crawl: Crawl) -> None:
    await crawl.feed(60)
    first, rest = (await crawl.lease(6)).grants, (await crawl.lease(54)).grants
    await crawl.settle(first, "x" * 6)
    await crawl.settle(rest[:43], "x" * 43)
    assert await crawl.circuit_state() == "open"
    await crawl.settle(rest[43:44], "x")
    assert await crawl.circuit_state() == "halted"
    assert await crawl.db.smembers("crawl:halted") == {b"museum"}
    assert await crawl.db.scard("crawl:temp_halted") == 0
    kinds = [event["type"] for event in await crawl.events("crawl:crawl_halted")]
    assert kinds == ["temporary", "permanent"]
    await crawl.settle(rest[44:], "." * 10)  # too late
    assert await crawl.circuit_state() == "halted"


async def test_a_success_in_flight_at_a_trip_ends_the_run(crawl: Crawl) -> None:
    await crawl.feed(60)
    first, rest = (await crawl.lease(6)).grants, (await crawl.lease(54)).grants
    await crawl.settle(first, "x" * 6)
    await crawl.settle(rest, "x" * 43 + "." + "x" * 10)
    assert await crawl.circuit_state() == "open"
    circuit = await packed_at(crawl.db, CIRCUIT)
    assert (circuit["run"], circuit["periods"]) == (10, 0)


async def test_what_was_sent_before_a_resume_is_not_held_against_the_source(state: State) -> None:
    crawl = Crawl(state, replace(RULES, halt_after=8))
    await crawl.start()
    await crawl.feed(40)
    old = (await crawl.lease(40)).grants
    await crawl.settle(old[:8], "x" * 8)
    assert await crawl.circuit_state() == "halted"
    await crawl.db.srem("crawl:halted", "museum")
    await crawl.watch()
    await crawl.settle(old[8:], "x" * 32)
    assert await crawl.circuit_state() == "closed"
    await crawl.crawl("xxxxx")
    assert await crawl.circuit_state() == "closed"


async def _periods(crawl: Crawl, results: str) -> list[str]:
    """Trip the circuit, then let the first probe of each period end as `results` say; return the states."""
    await crawl.crawl("xxxxxx")
    states = []
    for result in results:
        await crawl.end_period()
        await crawl.feed(3)
        probe, *others = (await crawl.lease()).grants
        await crawl.settle([probe], result)
        if result == ".":
            await crawl.settle(others[:1], "x")
            others = others[1:]
        await crawl.settle(others, "-" * len(others))
        states.append(await crawl.circuit_state())
    return states


async def test_five_open_periods_in_a_row_without_a_success_halt_it(crawl: Crawl) -> None:
    assert await _periods(crawl, "xxxxx") == ["open"] * 4 + ["halted"]
    assert await crawl.db.smembers("crawl:halted") == {b"museum"}
    assert await crawl.db.scard("crawl:temp_halted") == 0
    *others, last = await crawl.events("crawl:crawl_halted")
    assert [event["type"] for event in others] == ["temporary"] * 5
    assert last["type"] == "permanent"
    # By default that is half an hour after the first of them.
    rules, opened = CircuitRules(), 0.0
    for period in range(rules.halt_periods):
        opened += min(rules.open * 2**period, rules.open_max)
    assert opened == 31 * 60


async def test_one_success_among_the_probes_starts_the_count_of_periods_anew(crawl: Crawl) -> None:
    assert await _periods(crawl, "xxxx.xxxxx") == ["open"] * 9 + ["halted"]


async def test_an_operators_own_open_period_is_not_one_without_a_success(crawl: Crawl) -> None:
    await crawl.start(options={MUSEUM: json.dumps({"circuit": {"halt_periods": 1}})})
    await crawl.crawl(".")
    await crawl.db.sadd("crawl:temp_halted", "museum")
    await crawl.watch()
    assert await crawl.circuit_state() == "open"
    assert await _periods(crawl, "xx") == ["open", "halted"]


@pytest.mark.parametrize("is_halted", [True, False])
async def test_an_operator_resumes_at_the_full_rate_and_clears_the_window(state: State, is_halted: bool) -> None:
    """A halted source by its key alone, one that is only held by an order."""
    crawl = Crawl(state, replace(RULES, halt_after=6 if is_halted else 50, samples=5))
    await crawl.start()
    await crawl.crawl("x" * (6 if is_halted else 5), slows=True, hold=60.0)
    assert await crawl.circuit_state() == ("halted" if is_halted else "closed")
    await crawl.changes()
    if is_halted:
        await crawl.db.srem("crawl:halted", "museum")
    else:
        await controls.resume(crawl.state, [MUSEUM], "me")
        assert await crawl.db.ttl(f"crawl:ordered_by:{MUSEUM}") > 600  # of many, the leader clears 160 a second
    await crawl.watch()
    assert await crawl.changes() == (["resumed"] if is_halted else [])
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert (status.state, status.effective, status.held_until) == ("closed", 200.0, 0)
    assert await crawl.db.scard("crawl:halted") == 0
    kinds = [event["type"] for event in await crawl.events("crawl:crawl_resumed")]
    assert kinds == (["permanent"] if is_halted else [])
    await crawl.crawl("xxxxx")  # would trip with the old ones
    assert await crawl.circuit_state() == "closed"


async def test_an_operator_halts_with_the_key_alone(crawl: Crawl) -> None:
    await crawl.feed(10)
    await crawl.db.sadd("crawl:halted", "museum")
    assert (await crawl.lease()).grants == []  # before the leader has looked
    await crawl.watch()
    assert await crawl.changes() == ["halted"]
    await crawl.watch()
    assert await crawl.changes() == []
    assert [event["type"] for event in await crawl.events("crawl:crawl_halted")] == ["permanent"]
    await crawl.db.srem("crawl:halted", "museum")
    assert len((await crawl.lease()).grants) == 10  # before the leader has looked
    assert [event["type"] for event in await crawl.events("crawl:crawl_resumed")] == ["permanent"]


async def test_the_audit_trail_says_who_by_command_or_key(crawl: Crawl) -> None:
    await crawl.crawl("xxxxxx")
    await crawl.end_period()
    await crawl.watch()
    await halt(crawl.state, [MUSEUM], "scrapy halt, alice@host")
    await crawl.watch()
    await crawl.db.srem("crawl:halted", "museum")
    await crawl.watch()
    await set_rate(crawl.state, MUSEUM, "0.5", "dashboard, 127.0.0.1")
    await crawl.feed(1)
    await crawl.lease()
    await crawl.db.set("crawl:override_rate:museum", "7")
    await crawl.scripts.set_rates(crawl.fence, [(MUSEUM, 7.0, 200.0)], {})
    await crawl.scripts.set_rates(crawl.fence, [(MUSEUM, 7.0, 200.0)], {})
    await set_rate(crawl.state, MUSEUM, "auto", "scrapy rate, bob@host")
    await crawl.scripts.set_rates(crawl.fence, [(MUSEUM, 200.0, 200.0)], {})
    await crawl.scripts.set_rates(crawl.fence, [(MUSEUM, 100.0, 100.0)], {})  # the catalogue, no operator
    told = [(one["event"], one["type"], one["by"]) for one in await crawl.events("crawl:audit")]
    assert told == [
        ("crawl_halted", "temporary", "worker w"),
        ("crawl_probing", "temporary", "worker leader"),
        ("crawl_halted", "permanent", "operator, scrapy halt, alice@host"),
        ("crawl_resumed", "permanent", "operator, by key"),
        ("rate_overridden", "override", "operator, dashboard, 127.0.0.1"),
        ("rate_overridden", "override", "operator, by key"),
        ("rate_overridden", "size", "operator, scrapy rate, bob@host"),
    ]
    rates = [one["rate"] for one in await crawl.events("crawl:audit") if "rate" in one]
    assert rates == [0.5, 7, 200]


async def test_retry_after_holds_the_whole_source_and_a_shorter_one_changes_nothing(
    crawl: Crawl, clock: StandingClock
) -> None:
    await crawl.feed(4)
    first, second = (await crawl.lease(2)).grants
    await crawl.settle([first], "x", slows=True, hold=0.5)
    await crawl.settle([second], "x", slows=True, hold=0.01)
    clock.advance(0.49)
    assert (await crawl.lease()).grants == []
    assert (await crawl.scripts.acquire(source=MUSEUM)).slot is None
    clock.advance(0.01)
    assert len((await crawl.lease()).grants) == 2


async def test_a_throttled_source_is_slowed_to_half_its_rate_once_in_ten_seconds(crawl: Crawl) -> None:
    await crawl.feed(10)
    grants = (await crawl.lease(2)).grants
    await crawl.settle(grants, "xx", slows=True)
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert (status.effective, status.factor, status.why) == (100.0, 0.5, "status 500")
    grants = (await crawl.lease()).grants
    slots = [grant.at for grant in grants]
    assert [b - a for a, b in pairwise(slots)] == [10_000] * (len(slots) - 1)
    await crawl.settle(grants[:1], "x", slows=True)
    assert (await crawl.scripts.inspect([MUSEUM]))[0].factor == 0.5


async def _minutes_later(crawl: Crawl, minutes: float) -> None:
    """Move what the circuit remembers into the past, in place of waiting."""
    circuit = await packed_at(crawl.db, CIRCUIT)
    moved = {name: circuit[name] - minutes * 60e6 for name in ("slowed", "quiet")}
    await change_packed(crawl.db, CIRCUIT, **moved)


@pytest.mark.parametrize(("minutes", "factor"), [(0.9, 0.5), (1.1, 0.6), (3.1, 0.8), (30, 1.0)])
async def test_each_quiet_minute_gives_back_a_tenth(crawl: Crawl, minutes: float, factor: float) -> None:
    await crawl.crawl("x", slows=True)
    await _minutes_later(crawl, minutes)
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.factor == pytest.approx(factor)


async def test_never_slower_than_the_floor(crawl: Crawl) -> None:
    for _ in range(8):
        await crawl.crawl("." * 20 + "x", slows=True)
        await _minutes_later(crawl, 0.2)
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.factor == 1 / 32


async def test_slow_answers_slow_it_down_only_far_above_its_own_baseline(crawl: Crawl) -> None:
    for _ in range(5):
        await crawl.crawl("." * 30, latency=0.1)
        await crawl.crawl(".", latency=30.0)  # one slow answer slows nothing down
    await crawl.crawl("." * 30, latency=0.4)
    assert (await crawl.scripts.inspect([MUSEUM]))[0].factor == 1
    await crawl.crawl("." * 30, latency=4.0)
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.factor == 0.75
    assert "usually 0." in status.why


async def test_the_latency_back_off_can_be_switched_off(crawl: Crawl) -> None:
    crawl.scripts = within(crawl.scripts, latency_backoff=False)
    for latency in (0.1, 9.0):
        await crawl.crawl("." * 30, latency=latency)
    assert (await crawl.scripts.inspect([MUSEUM]))[0].factor == 1


async def test_the_window_slides_and_its_statuses_are_named(state: State, clock: StandingClock) -> None:
    crawl = Crawl(state, replace(RULES, window=0.3))
    await crawl.start()
    await crawl.crawl("xxxxx")
    clock.advance(0.32)
    await crawl.crawl("xxxxx")
    assert await crawl.circuit_state() == "closed"
    assert len((await packed_at(crawl.db, "crawl:window:museum"))["results"]) == 48
    await crawl.crawl("x")
    [event] = await crawl.events("crawl:crawl_halted")
    assert event["msg"] == 'museum tripped temporary halt. Response codes: {"500": 6}'


async def test_an_older_generation_frees_no_place(crawl: Crawl) -> None:
    await crawl.feed(100)
    old = (await crawl.lease(12)).grants
    await crawl.settle(old[:6], "xxxxxx")
    await crawl.end_period()
    assert len((await crawl.lease()).grants) == 3
    await crawl.settle(old[6:], "...--x")
    assert await crawl.circuit_state() == "half_open"
    assert (await crawl.lease()).grants == []


async def test_who_is_slow_for_good_is_not_held_for_it_for_ever(crawl: Crawl) -> None:
    await crawl.crawl("." * 30, latency=0.2)
    await crawl.crawl("." * 30, latency=3.0)
    assert (await crawl.scripts.inspect([MUSEUM]))[0].factor < 1
    usual = []
    for _ in range(3):
        await change_packed(crawl.db, "crawl:window:museum", moved=0)  # the usual latency moves once a second
        await crawl.crawl(".", latency=3.0)
        usual.append((await packed_at(crawl.db, "crawl:window:museum"))["usual"])
    assert usual == sorted(set(usual))


async def test_a_source_that_is_resumed_does_not_wait_for_the_slot_of_a_slower_time(
    crawl: Crawl, clock: StandingClock
) -> None:
    await crawl.start(rate=0.2)
    await crawl.feed(3)
    await crawl.settle((await crawl.lease(1)).grants, "x", slows=True)
    clock.advance(0.01)
    await crawl.db.zincrby("crawl:slots", 100_000_000, "museum")
    await crawl.db.sadd("crawl:halted", "museum")
    await crawl.watch()
    await crawl.db.srem("crawl:halted", "museum")
    await crawl.watch()
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.next_slot - status.now <= 5.0


async def test_an_event_about_a_name_that_is_no_text_is_json(crawl: Crawl) -> None:
    await crawl.db.sadd("crawl:halted", b"caf\xe9")
    await crawl.watch()
    assert [event["source"] for event in await crawl.events("crawl:crawl_halted")] == ["caf?"]


async def test_where_unknown_sources_are_refused_so_is_work_that_finds_itself_unknown(crawl: Crawl) -> None:
    await crawl.feed(2)
    [grant] = (await crawl.lease(1)).grants
    moved = Settlement(grant.id, MUSEUM, grant.entry, domain="unknown.example")
    crawl.scripts = within(crawl.scripts, refuse_unknown=True)
    await crawl.scripts.settle("w", [moved])
    await crawl.scripts.forget(crawl.fence, [MUSEUM], [])
    assert (await crawl.lease()).grants == []
    reasons = [fields[b"reason"] for _, fields in await crawl.db.xrange("crawl:images:dead")]
    assert reasons == [b"unknown source: unknown.example", b"unknown source: museum"]
    assert await crawl.db.hget("crawl:images:counters", "outstanding") == b"0"


async def test_a_half_open_circuit_lets_few_requests_without_a_lease_out(
    state: State, clock: StandingClock
) -> None:
    crawl = Crawl(state, CircuitRules(open=3.0, open_max=3.0))
    await crawl.start()
    await crawl.crawl("xxxxxx")
    assert (await crawl.scripts.acquire(source=MUSEUM)).slot is None
    await crawl.end_period()
    for _ in range(2):
        given = [await crawl.scripts.acquire(source=MUSEUM) for _ in range(20)]
        slots = [slot for slot, _ in given if slot is not None]
        # Three probes in three seconds: one a second, and slots are reserved up to a second ahead.
        assert 1 <= len(slots) <= 2
        assert all(wait > 0 for slot, wait in given if slot is None)
        clock.advance(1.1)
        await crawl.feed(3)
        await crawl.lease()
        assert await crawl.circuit_state() == "half_open"


@pytest.mark.parametrize("how", ["halted", "forgiven"])
async def test_resuming_does_not_forgive_a_crawl_delay(crawl: Crawl, how: str) -> None:
    origin = "http://museum.example/robots.txt"
    await keep_copy(crawl.state, origin, MUSEUM, delay=20.0)
    await crawl.crawl(".")
    [before] = await crawl.scripts.inspect([MUSEUM])
    assert before.next_slot - before.now > 19
    if how == "halted":
        await crawl.db.sadd("crawl:halted", MUSEUM)
        await crawl.watch()
        await crawl.db.srem("crawl:halted", MUSEUM)
    else:
        await crawl.db.delete("crawl:statuslast50req:museum")
    await crawl.db.sadd("crawl:troubled", MUSEUM)
    await crawl.watch()
    [after] = await crawl.scripts.inspect([MUSEUM])
    assert after.next_slot == pytest.approx(before.next_slot, abs=0.001)


async def test_a_slot_that_was_far_ahead_is_used_neither_after_a_halt_nor_after_the_clock_was_set_forward(
    crawl: Crawl, clock: StandingClock
) -> None:
    acquired = await slot_of(crawl.state, source=MUSEUM)
    slot = replace(acquired, at=acquired.at + 1_000_000)
    assert await crawl.scripts.confirm(slot)
    await crawl.db.sadd("crawl:halted", "museum")
    assert not await crawl.scripts.confirm(slot)
    await crawl.db.srem("crawl:halted", "museum")
    assert await crawl.scripts.confirm(slot)
    await crawl.db.delete("crawl:pulse")
    assert not await crawl.scripts.confirm(slot)
    await lead(crawl.state)
    assert await crawl.scripts.confirm(slot)
    clock.advance(2)
    assert not await crawl.scripts.confirm(slot)


STATUSES = f"crawl:statuslast50req:{MUSEUM}"
WINDOW = f"crawl:window:{MUSEUM}"
COUNTS = {"fetched": 1, "thumbnails": 1, "bytes": 2_000_000_000}
LASTS = 90 * 86_400


class Quiet(Crawl):
    """A crawl whose sources rest when the test says so."""

    async def rest(self) -> None:
        """Let the time come at which a source is quiet: what would have expired after some hours has."""
        for key in (WINDOW, STATUSES):
            if 0 < await self.db.ttl(key) <= 3600:
                await self.db.delete(key)
        await self.db.zadd("crawl:images:active", {MUSEUM: 1}, xx=True)
        await self.scripts.trim(self.fence, maxlen=9999)
        await self.watch()


@pytest_asyncio.fixture
async def quiet(state: State) -> Quiet:
    one = Quiet(state, CircuitRules(open=0.05, open_max=0.1))
    await one.start()
    return one


async def test_nothing_but_its_rate_and_its_counts_is_left_of_a_quiet_source(quiet: Quiet) -> None:
    await quiet.crawl("x.", counts=COUNTS)
    await quiet.rest()
    left = [key async for key in quiet.db.scan_iter(match=f"*{MUSEUM}*")]
    assert left == [CIRCUIT.encode()]
    assert 0 < await quiet.db.ttl(CIRCUIT) <= 86_400
    assert await quiet.db.exists("crawl:images:active") == 0
    assert await quiet.db.hkeys("crawl:images:counts") == [MUSEUM.encode()]


@pytest.mark.parametrize("halted_by", ["errors", "operator"])
async def test_a_halted_source_stays_halted(quiet: Quiet, halted_by: str) -> None:
    await quiet.crawl(".")
    if halted_by == "operator":
        await quiet.db.sadd("crawl:halted", MUSEUM)
        await quiet.watch()
    else:
        for number in range(50):  # each long after the one before: quiet hours do not break the run
            assert await quiet.circuit_state() == "closed", number
            await quiet.crawl("x")
            await quiet.rest()
    for _ in range(3):
        await quiet.rest()
    assert await quiet.circuit_state() == "halted"
    assert await quiet.db.ttl(CIRCUIT) == -1
    assert LASTS - 60 < await quiet.db.ttl(STATUSES) <= LASTS
    await quiet.feed(1)
    assert (await quiet.lease()).grants == []
    await quiet.db.srem("crawl:halted", MUSEUM)
    await quiet.watch()
    assert 0 < await quiet.db.ttl(CIRCUIT) <= 86_400
    assert 0 < await quiet.db.ttl(STATUSES) <= 3600


async def test_an_open_circuit_outlives_its_period_and_its_back_off_doubles(state: State) -> None:
    quiet = Quiet(state, CircuitRules(open=30.0, open_max=60.0))
    await quiet.start()
    await quiet.crawl("x" * 6)
    for _ in range(3):
        await quiet.rest()
    assert await quiet.circuit_state() == "open"
    await change_packed(quiet.db, CIRCUIT, ends=1)
    await quiet.watch()
    await quiet.rest()
    assert await quiet.circuit_state() == "half_open"
    await quiet.crawl("x")
    assert (await packed_at(quiet.db, CIRCUIT))["opens"] == 2


async def test_a_source_that_is_held_or_slowed_down_stays_so(quiet: Quiet) -> None:
    await quiet.crawl("..", slows=True, hold=30.0)
    for _ in range(3):
        await quiet.rest()
    [status] = await quiet.scripts.inspect([MUSEUM])
    assert status.factor == 0.5
    assert status.held_until > status.now + 20


async def test_sources_of_every_spider_rest(quiet: Quiet) -> None:
    await quiet.db.zadd("crawl:spiders", {"pages": 1})
    for spider in ("images", "pages"):
        await quiet.db.zadd(f"crawl:{spider}:active", {MUSEUM: 1})
        await quiet.db.hset(f"crawl:{spider}:dead_sources", MUSEUM, 1)
    await quiet.scripts.trim(quiet.fence, maxlen=9999)
    assert await quiet.db.keys("crawl:*:active") == await quiet.db.keys("crawl:*:dead_sources") == []
