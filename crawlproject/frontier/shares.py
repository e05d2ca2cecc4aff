"""How many leases a worker takes at a time, and how its requests in flight are shared among its sources."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crawlproject.politeness.slots import HORIZON_S, LEASE_EVERY_S

MOST_A_CALL = 170  # leases; more than a worker can start from call to call
_LEAST_A_CALL = 10
_TOLERATED = 8  # one in so many may be late: any worker stops for a moment now and then
_FEW = 8  # requests of a source that hangs
_SILENT_S = 2.0  # without an answer, or twice the usual latency if that is longer: then a source hangs
_PIPELINES_S = 0.25  # what decoding and storing a picture may take, besides its latency
_AHEAD_S = HORIZON_S + LEASE_EVERY_S  # leases wait for their slots that long at most
_ROOM = 2.0  # times what is needed on average
_RECENT_S = 2.0  # for how long a source without leases is still named, and one that was turned away waits
_FREQUENT = 2.0  # requests a second; with fewer, a source that answers needs no more than any other
_PROMPT_S = 1.0  # with such a latency, or a shorter one, what a source has is soon free again
_MAX_REMEMBERED = 10_000  # sources


class Pace:
    """Bounds the leases of a call: half as many while too many are late, then a quarter more with each call.

    Sources may together grant more than a worker can do. What it takes beyond that goes back, for nothing.
    Only what was in time when it came here says how fast this worker is. What it turns back in time, as a host
    hangs, counts like what it starts: else hosts that hang would keep a worker slow that once was too slow.
    """

    def __init__(self) -> None:
        self._most = MOST_A_CALL
        self._in_time = 0
        self._missed = 0

    def keep_up(self) -> None:
        """Note that this worker came to a request in time."""
        self._in_time += 1

    def miss(self) -> None:
        """Note that this worker came to a request too late."""
        self._missed += 1

    def next(self) -> int:
        """Return how many leases the next call may take, by what became of those since the one before."""
        if self._missed * _TOLERATED > self._in_time + self._missed:
            self._most = max(self._most // 2, _LEAST_A_CALL)
        elif self._in_time:
            self._most = min(self._most + max(self._most // 4, 1), MOST_A_CALL)
        self._in_time = self._missed = 0
        return self._most


@dataclass(slots=True)
class _Use:
    rate: float = 0.0  # requests a second, at the last grant
    held: int = 0  # leases
    started: int = 0  # of them
    latency: float | None = None  # mean time from slot to response (s), time-outs included; None: never answered
    answers: bool = False  # the last request that ended was answered
    heard: float = 0.0  # when the last answer came, or the first request was started, if that was later
    ended: float = 0.0  # when it last came to have no lease
    turned_away: float = 0.0  # when a lease was last returned for want of room

    def hangs(self, now: float) -> bool:
        return self.started > 0 and now - self.heard > max(_SILENT_S, _ROOM * (self.latency or 0.0))

    @property
    def needed(self) -> int:
        """How many requests in flight keep the source at its rate."""
        return math.ceil(_ROOM * self.rate * ((self.latency or 0.0) + _PIPELINES_S)) + 2

    @property
    def replaced(self) -> int:
        """How many leases may wait for requests in flight to end: those that end until the slots of these come."""
        return math.ceil(_AHEAD_S * self.rate * min(_AHEAD_S / max(self.latency or 0.0, _AHEAD_S), 1.0))


class Shares:
    """How many leases each source may have at a worker that may have `capacity` requests in flight.

    A source that answers gets what it needs: its rate times its latency, with room. When all together need more
    than there is, none gets more than an equal share, unless others leave some of theirs.

    A quarter of the capacity is kept for the others. A source that has not answered yet may take half of what is
    left of that quarter, and always one; half of the capacity, with one request each or alone, is where that ends.
    A source that hangs gets a few. An answer ends both.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._reserve = capacity // 4
        self._uses: OrderedDict[str, _Use] = OrderedDict()  # those without leases: the longest unused first
        self._holding: dict[str, _Use] = {}
        self._untried = 0  # leases of sources that have never answered

    def grant(self, source: str, rate: float) -> bool:
        """Note a lease of `source`; False if those that have never answered have too many."""
        use = self._holding.get(source)
        if use is None:
            use = self._holding[source] = self._uses.setdefault(source, _Use())
        use.rate = rate
        use.held += 1
        if use.latency is not None:
            return True
        self._untried += 1
        most = self.capacity // 2 if use.held == 1 or len(self._holding) == 1 else self._reserve
        return self._untried <= max(most, 1)

    def start(self, source: str, now: float) -> None:
        """Note that a request of `source` goes out."""
        use = self._holding[source]
        if use.started == 0:
            use.heard = now
        use.started += 1

    def end(self, source: str, now: float, *, started: bool, latency: float | None, answered: bool) -> None:
        """Note the end of a lease; `latency` is how long its request was under way, None if it was not sent."""
        use = self._holding[source]
        if use.latency is None:
            self._untried -= 1
        use.held -= 1
        use.started -= started
        if latency is not None:
            use.answers = answered
            if answered:
                use.heard = now
            if use.latency is not None:
                use.latency += (latency - use.latency) / 8
            elif answered:
                use.latency = latency
                self._untried -= use.held
        if use.held == 0:
            use.ended = now
            del self._holding[source]
            self._uses.move_to_end(source)
            while len(self._uses) - len(self._holding) > _MAX_REMEMBERED:
                self._uses.pop(next(name for name in self._uses if name not in self._holding))

    def turn_away(self, source: str, now: float) -> None:
        """Note that a lease of `source` went back: if it has never answered, it gets none for a while."""
        if use := self._uses.get(source):
            use.turned_away = now

    def rooms(self, now: float, others: int) -> tuple[dict[str, int], int]:
        """Return how many leases sources that have some, or just had, may get, and how many any other may get.

        `others` are the requests in flight without a lease. A newcomer to a busy worker begins with one lease.
        """
        needs, charged, unproven = [], 0, 0
        for use in self._holding.values():
            if use.answers and not use.hangs(now):
                needs.append(use.needed)
            else:
                unproven += use.held
                charged += use.held if use.latency is None else min(use.held, _FEW)
        spare = max(self._reserve - charged, 0)
        newcomer = 1 + (spare // 2 if len(self._holding) > 1 else self.capacity // 2)
        level = fair_level(needs, self.capacity - others - max(unproven, self._reserve))
        rooms: dict[str, int] = {}
        slow: dict[str, int] = {}  # the rooms of sources that might fill what there is
        prompt = 0.0  # requests a second of the others
        for source, use in self._named(now):
            if not use.answers or use.hangs(now):
                most = newcomer if use.latency is None and not use.hangs(now) else min(newcomer, _FEW)
                if use.latency is None and now - use.turned_away < _RECENT_S:
                    most = 0
                slow[source] = max(most - use.held, 0)
                continue
            room = max(min(use.needed, level) + use.replaced - use.held, 0)
            if use.needed > level and (use.latency or 0.0) > _PROMPT_S:
                slow[source] = room
                continue
            prompt += use.rate
            if use.rate >= _FREQUENT:
                rooms[source] = room
        return rooms | _dosed(slow, prompt), newcomer if not self._holding else 1

    def _named(self, now: float) -> Iterator[tuple[str, _Use]]:
        yield from self._holding.items()
        for source, use in reversed(self._uses.items()):
            if use.held == 0:
                if use.ended < now - _RECENT_S:
                    return
                yield source, use


def _dosed(rooms: dict[str, int], prompt: float) -> dict[str, int]:
    """Return rooms that leave time for other sources, which get `prompt` requests a second.

    After a long silence many answers may come at once, and make room for as many requests.
    """
    wanting = [source for source, room in rooms.items() if room]
    if not prompt or not wanting:
        return rooms
    dose = max(MOST_A_CALL // 8, MOST_A_CALL // 2 - round(_ROOM * LEASE_EVERY_S * prompt))
    dosed = dict.fromkeys(rooms, 0)
    for source in random.sample(wanting, min(len(wanting), dose)):
        dosed[source] = min(rooms[source], max(dose // len(wanting), 1))
    return dosed


def fair_level(needs: Iterable[int], available: int) -> int:
    """Return the level at which to cut `needs` off so that they come to `available`; at least 1."""
    ascending = sorted(needs)
    for position, need in enumerate(ascending):
        share = available // (len(ascending) - position)
        if need > share:
            return max(share, 1)
        available -= need
    return max(ascending, default=1)
