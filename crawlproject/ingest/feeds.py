"""How far files are fed: kept in Redis, where the seeds are, and written in the same step as they are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from crawlproject.errors import BadInput
from crawlproject.frontier.seed_list import users_seeds
from crawlproject.state import functions
from crawlproject.state.client import State

_KEPT_S = 30 * 86_400  # after the last seeds


class Feed:
    """A feed of files that this process has begun, or goes on with.

    `feed` is what it is known by, `position` where the last process stopped with `resume`, "" from the beginning:
    a text of the caller's, which differs from call to call of `push`.

    A position in a file would not do: killed between the two, a process has either put seeds into the list that it
    does not know of, or noted some that are not there. With both in one call there is nothing between, a call
    that is repeated because its reply was lost does nothing, and what Redis loses in a crash it loses together.
    """

    def __init__(self, state: State, feed: str) -> None:
        self._state = state
        self._feed = feed
        self._run = secrets.token_hex(8)
        self._keys = users_seeds(state) or state.keys
        self.position = ""

    async def begin(self, *, resume: bool) -> None:
        """Begin it, or go on with it."""
        key = f"{self._keys.feed_of}{self._feed}"
        async with self._state.client_for(self._state.keys.users_seeds) as users, users.pipeline() as pipe:
            pipe.hset(key, "run", self._run)
            if not resume:
                pipe.hset(key, "position", "")
            pipe.hget(key, "position")
            pipe.expire(key, _KEPT_S)
            *_, position, _ = await pipe.execute()
        self.position = (position or b"").decode(errors="replace")

    async def push(self, seeds: Sequence[str], position: str) -> None:
        """Put seeds behind those that wait, all or none; `position` is that behind the last of them.

        Raises:
            BadInput: another process has begun the same feed since.

        """
        users_list = self._state.keys.users_seeds
        feed = {"feed": self._feed, "run": self._run, "keep": _KEPT_S, "position": position}
        command = functions.command("feed", self._keys, feed | {"list": users_list, "seeds": list(seeds)})
        async with self._state.client_for(users_list) as users:
            if not await functions.call(users, command):
                raise BadInput(
                    "another scrapy feed of the same files has begun, and goes on with them: let one run"
                )
