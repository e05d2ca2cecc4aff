"""Which worker keeps to which shards, so that a source's requests come from one worker as a rule.

That worker has its connections, addresses and robots.txt at hand. Each worker computes the same from the same
members; none has to be told, and while two see other members both lease, or a helper does: slots are in Redis, and
no rate is broken.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Collection

_ROOM = 1.25  # times its equal part of the shards, a worker has at most


def homes(workers: Collection[str], shards: int) -> list[str]:
    """Return the worker that each shard has as its home.

    It is the one with the highest hash together with the shard (rendezvous hashing) that has not as many already
    as it may have. So few shards move when a worker comes or goes.
    """
    most, has, found = math.ceil(_ROOM * shards / len(workers)), Counter[str](), []
    for shard in range(shards):
        ranked = sorted(workers, key=lambda worker, shard=shard: _weight(worker, shard), reverse=True)  # type: ignore[misc]
        home = next(worker for worker in ranked if has[worker] < most)
        has[home] += 1
        found.append(home)
    return found


def _weight(worker: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{shard} {worker}".encode(errors="surrogateescape"), digest_size=8).digest()


class Homes:
    """The shards that a worker leases from: those that it is the home of, and, while it has room, another one.

    It also reads the seeds of these, and brings what is on its way from them. Before it knows the members it does
    so with all.
    """

    def __init__(self, worker: str, shards: int) -> None:
        self._worker = worker
        self._shards = shards
        self._members: frozenset[str] = frozenset()
        self._own = frozenset(range(shards))
        self._helped: int | None = None

    def note(self, members: Collection[str]) -> None:
        """Note who is alive."""
        now = frozenset(members) | {self._worker}
        if now != self._members:
            self._members = now
            found = enumerate(homes(sorted(now), self._shards))
            self._own = frozenset(shard for shard, home in found if home == self._worker)

    def help_out(self, *, has_room: bool) -> None:
        """Choose another shard to lease from for now, if this worker has room; none without."""
        others = [shard for shard in range(self._shards) if shard not in self._own]
        self._helped = random.choice(others) if has_room and others else None

    def has(self, shard: int) -> bool:
        """Tell whether this worker leases from a shard at present."""
        return shard in self._own or shard == self._helped

    def is_home_of(self, shard: int) -> bool:
        """Tell whether this worker is the home of a shard, as far as it knows."""
        return shard in self._own
