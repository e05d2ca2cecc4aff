"""Leading a crawl, for tests of one script or component."""

from __future__ import annotations

from crawlproject.state.client import State


async def lead(state: State) -> int:
    """Lead, with a pulse that does not lapse, however long the test takes on a busy machine; return the fence."""
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.redis.persist(state.keys.pulse)
    return fence
