"""Background work that a component repeats."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from crawlproject.runtime import Loops
from crawlproject.state.client import State
from tests.waiting import until_async


async def test_a_bug_is_logged_with_the_name_of_the_step_which_goes_on(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("crawlproject.runtime._AFTER_TROUBLE_S", 0.01)
    steps = []

    async def look_after(shard: int) -> None:
        steps.append(shard)
        await asyncio.sleep(0.01)
        raise ValueError

    loops = Loops(state)
    loops.start(partial(look_after, 7))
    await until_async(lambda: len(steps) > 2)
    await loops.stop()
    assert set(steps) == {7}
    assert f"Bug in {look_after.__qualname__}; going on" in caplog.messages
