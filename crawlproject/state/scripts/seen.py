"""Functions of a seen filter that was written before: asked, and told to forget."""

from __future__ import annotations

from collections.abc import Sequence

from crawlproject.state.scripts.runner import ScriptRunner, texts


class SeenScripts(ScriptRunner):
    """What a seen filter knows."""

    async def look_seen(self, digests: Sequence[bytes]) -> list[str]:
        """Tell of requests whether they were ever enqueued.

        "exact"; "bloom": as a link, or, by the rate of false positives, not at all; "": never.
        """
        return texts(await self._run("look_seen", digests=list(digests)))

    async def forget_seen(self, digests: Sequence[bytes]) -> None:
        """Give up the places of requests, but for what Bloom filters have of them."""
        await self._run("forget_seen", digests=list(digests))
