"""Dead letters: what they keep, and the script take_dead."""

from __future__ import annotations

from crawlproject.state.calls import DeadLetter
from crawlproject.state.client import State
from tests.state.calls.calls import begin, db, entry, lease, names, outstanding, put, settle, waiting


async def test_a_dead_letter_keeps_request_and_reason(state: State) -> None:
    await begin(state, 100)
    await put(state, [entry("a", deliveries=2)])
    (grant,) = (await lease(state)).grants
    await settle(state, grant, entry=grant.entry, dead="status 403")
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter == {
        b"entry": entry("a", deliveries=2),
        b"source": b"museum",
        b"reason": b"status 403",
        b"deliveries": b"2",
    }
    assert await outstanding(state) == 0


async def test_dead_letters_live_again_once(state: State) -> None:
    await begin(state, 100)
    one = await db(state).xadd(state.keys.dead, {"entry": entry("a"), "source": "museum", "reason": "x"})
    two = await db(state).xadd(state.keys.dead, {"seed": "bad", "source": "", "reason": "x"})
    letters = [DeadLetter(one.decode(), "museum", entry("a")), DeadLetter(two.decode(), "", seed=b"bad")]
    assert await state.scripts.take_dead(letters) == 2
    assert await state.scripts.take_dead(letters) == 0
    assert await outstanding(state) == 1
    assert await waiting(state) == [b"bad"]
    assert names(await lease(state)) == ["a"]
