"""The budget of bodies under way, with a fake clock."""

from __future__ import annotations

from crawlproject.net.handler import DownloadBudget

MIB = 1024 * 1024


class Crowd:
    """A DownloadBudget, and the names of the bodies it aborted."""

    def __init__(self) -> None:
        self.time = 0.0
        self.bodies = DownloadBudget(lambda: self.time)
        self.broken: list[str] = []
        self.under_way = {
            name: self.bodies.begin(name[0], lambda name=name: self.broken.append(name))  # type: ignore[misc]
            for name in ("a1", "a2", "a3", "b1", "c1")
        }

    def receive(self, **megabytes: int) -> None:
        for name, count in megabytes.items():
            self.bodies.receive(self.under_way[name], count * MIB)


def test_below_the_limits_nothing_is_aborted() -> None:
    crowd = Crowd()
    crowd.receive(a1=20, a2=20, b1=20)
    assert not crowd.bodies.over_soft_limit
    crowd.receive(b1=5)
    assert crowd.bodies.over_soft_limit
    assert crowd.broken == []
    crowd.bodies.end(crowd.under_way["b1"])
    crowd.bodies.end(crowd.under_way["b1"])
    assert not crowd.bodies.over_soft_limit


def test_above_the_hard_limit_the_largest_body_of_the_largest_source_is_aborted() -> None:
    crowd = Crowd()
    crowd.receive(a1=20, a2=25, a3=20, b1=45)
    assert crowd.broken == []
    crowd.receive(c1=20)
    assert crowd.broken == ["a2"]
    crowd.receive(a2=100)  # what is still received of it no longer counts
    assert crowd.broken == ["a2"]


def test_a_slow_body_does_not_keep_leasing_paused() -> None:
    crowd = Crowd()
    crowd.receive(a1=33, a2=34)
    crowd.time = 1.9
    crowd.receive(a1=0, b1=0)
    assert crowd.broken == []
    crowd.time = 2.1
    crowd.receive(b1=1)
    assert crowd.broken == ["a2"]
    assert not crowd.bodies.over_soft_limit
    crowd.receive(a1=40)  # the patience starts again
    assert crowd.broken == ["a2"]
