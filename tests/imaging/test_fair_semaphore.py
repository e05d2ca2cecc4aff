"""Whose picture is decoded next."""

from __future__ import annotations

import asyncio

import pytest

from crawlproject.imaging import fair_semaphore as module
from crawlproject.imaging.fair_semaphore import FairSemaphore


class Desk:
    """Pictures that take as long as they are told, each noted when its turn comes."""

    def __init__(self, places: int) -> None:
        self.semaphore = FairSemaphore(places)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def bring(self, *names: str) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._look(name))
            await asyncio.sleep(0)

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await self.tasks[name]
            await asyncio.sleep(0)

    async def _look(self, name: str) -> None:
        with await self.semaphore.turn(name[0]):
            self.begun.append(name)
            await self.ends[name].wait()


@pytest.mark.parametrize("places", [2, 4])
async def test_one_source_leaves_a_place_to_waiting_sources(places: int) -> None:
    desk = Desk(places)
    slow = [f"s{n}" for n in range(9)]
    await desk.bring(*slow)
    assert desk.begun == slow[:places]  # no other source waits
    await desk.bring(*(f"q{n}" for n in range(20)))
    await desk.end("s0")
    for n in range(19):  # whatever the slow one has waiting
        await desk.end(f"q{n}")
    assert [name for name in desk.begun if name[0] == "s"] == slow[:places]
    await desk.end("q19")
    assert desk.begun[-1] == slow[places]


@pytest.mark.parametrize("places", [1, 2])
async def test_a_source_that_took_long_lets_others_go_first_for_as_long(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_S", 0.05)
    desk = Desk(places)
    slow = [f"s{n}" for n in range(places + 5)]
    quick = [chr(0x4E00 + n) for n in range(100)]
    await desk.bring(*slow, *quick)
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    await desk.end(*slow[:places])
    while slow[places] not in desk.begun:
        if quick:
            await desk.end(quick.pop(0))
        await asyncio.sleep(0.002)
    assert asyncio.get_running_loop().time() - began > 0.08
    assert len(desk.begun) > places + 1


async def test_a_cancelled_turn_releases_its_place() -> None:
    desk = Desk(1)
    await desk.bring("a1", "a2", "b1", "c1")
    desk.tasks["a2"].cancel()  # it waits
    await desk.end("a1")
    assert desk.begun == ["a1", "b1"]
    desk.ends["b1"].set()
    await asyncio.sleep(0)
    desk.tasks["c1"].cancel()  # it has been given b1's place, and does not know
    await asyncio.wait(desk.tasks.values())
    await desk.bring("d1")
    assert desk.begun[-1] == "d1"
