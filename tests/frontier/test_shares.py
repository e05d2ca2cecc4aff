"""How a worker with room for 2,000 requests in flight shares it among its sources, by a simulated clock."""

from __future__ import annotations

from collections import deque

import pytest

from crawlproject.frontier.shares import MOST_A_CALL, Pace, Shares
from crawlproject.politeness.slots import HORIZON_S, LEASE_EVERY_S


class Site:
    """A source as the worker meets it: its rate, and how long its answers take (None: they never come)."""

    def __init__(self, rate: float, latency: float | None) -> None:
        self.rate = rate
        self.latency = latency
        self.under_way: deque[float] = deque()  # the slot of each request
        self.sent = 0
        self.served = 0.0
        self._owed = 0.0

    def wants(self) -> int:
        self._owed = min(self._owed + self.rate * LEASE_EVERY_S, self.rate * HORIZON_S + 1)
        return int(self._owed)

    def take(self, now: float, count: int) -> None:
        self._owed -= count
        self.sent += count
        self.under_way.extend([now + HORIZON_S] * count)


class Worker:
    """A worker of `capacity` that leases for `sites` as LeaseQueue does, and sends at once."""

    def __init__(self, sites: dict[str, Site], capacity: int = 2000, time_out: float = 30.0) -> None:
        self.sites = sites
        self.shares = Shares(capacity)
        self.capacity = capacity
        self.time_out = time_out
        self.now = 1000.0
        self.in_flight = 0

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / LEASE_EVERY_S)):
            self.now += LEASE_EVERY_S
            self._end()
            self._lease()

    def _end(self) -> None:
        for name, site in self.sites.items():
            lasts = self.time_out if site.latency is None else site.latency
            while site.under_way and site.under_way[0] + lasts <= self.now:
                site.under_way.popleft()
                self.in_flight -= 1
                answered = site.latency is not None
                self.shares.end(name, self.now, started=True, latency=lasts, answered=answered)

    def _lease(self) -> None:
        rooms, room = self.shares.rooms(self.now, 0)
        left = min(MOST_A_CALL, self.capacity - self.in_flight)
        for name, site in sorted(self.sites.items(), key=lambda item: (item[1].rate < 10, item[1].served)):
            granted = 0
            for _ in range(min(site.wants(), rooms.get(name, room), left) if site.served <= self.now else 0):
                left -= 1
                site.served = self.now
                if self.shares.grant(name, site.rate):
                    self.shares.start(name, self.now)
                    granted += 1
                    self.in_flight += 1
                else:
                    self.shares.end(name, self.now, started=False, latency=None, answered=False)
                    site.served = self.now + 0.5
                    break
            site.take(self.now, granted)

    def held(self, name: str) -> int:
        return len(self.sites[name].under_way)

    def rate_of(self, name: str, seconds: float) -> float:
        """Return the requests a second that a source gets in the next `seconds`."""
        before = self.sites[name].sent
        self.run(seconds)
        return (self.sites[name].sent - before) / seconds


@pytest.mark.parametrize("latency", [25.0, None])
@pytest.mark.parametrize("count", [4, 30, 200])
def test_sources_that_hang_cost_another_nothing(count: int, latency: float | None) -> None:
    hanging = {f"hangs{n}": Site(20, latency) for n in range(count)}
    worker = Worker({**hanging, "fast": Site(100, 0.05)})
    worker.run(3)
    assert worker.rate_of("fast", 60) > 97


def test_sources_that_have_answered_take_no_places_from_newcomers() -> None:
    shares = Shares(16)
    for name in map(str, range(10)):
        for _ in range(3):
            shares.grant(name, 5.0)
            shares.start(name, 0.0)
        for _ in range(3):
            shares.end(name, 1.0, started=True, latency=0.1, answered=True)
    assert shares.grant("new", 5.0)


def test_a_source_whose_answers_take_long_gets_what_it_needs() -> None:
    worker = Worker({"slow": Site(180, 2.0)})
    worker.run(3)
    assert worker.rate_of("slow", 20) > 179
    assert 360 <= worker.held("slow") <= 540  # some wait for their slots


def test_a_source_that_begins_to_hang_shrinks_to_a_few_and_grows_again() -> None:
    sites = {"site": Site(100, 0.5)}
    worker = Worker(sites)
    assert worker.rate_of("site", 10) > 90
    sites["site"].latency = None
    worker.run(40)
    assert 1 <= worker.held("site") <= 8
    sites["site"].latency = 0.5
    worker.run(1)
    assert worker.rate_of("site", 10) > 95


def test_sources_that_need_more_than_there_is_get_equal_shares() -> None:
    worker = Worker({**{f"slow{n}": Site(100, 10.0) for n in range(3)}, "modest": Site(5, 0.1)})
    worker.run(60)
    shares = [worker.held(f"slow{n}") for n in range(3)]
    assert max(shares) - min(shares) < 60
    assert 1200 < sum(shares) < 1700
    assert worker.rate_of("modest", 20) > 4.9


def after(pace: Pace, in_time: int, missed: int) -> int:
    """Return how many leases may be taken after a call of which so many were in time, and so many late."""
    for _ in range(in_time):
        pace.keep_up()
    for _ in range(missed):
        pace.miss()
    return pace.next()


def test_a_worker_takes_half_as_many_while_too_many_are_late_and_more_again_within_seconds() -> None:
    pace = Pace()
    assert pace.next() == MOST_A_CALL
    assert after(pace, in_time=40, missed=20) == MOST_A_CALL // 2
    assert after(pace, in_time=20, missed=10) == MOST_A_CALL // 4
    for _ in range(9):
        taken = after(pace, in_time=0, missed=30)
    assert 1 <= taken <= 10
    assert pace.next() == taken  # nothing was learnt since
    for _ in range(15):  # within six seconds
        before, taken = taken, after(pace, in_time=taken, missed=0)
        assert taken == MOST_A_CALL or before < taken <= before + before // 4 + 1
    assert taken == MOST_A_CALL
