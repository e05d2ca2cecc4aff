"""The script of the event streams' readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis as BlockingRedis

from crawlproject.state.keys import Keys
from crawlproject.state.script_text import ScriptText
from crawlproject.state.scripts.runner import packed


class ReaderScript:
    """The one script of the event streams' readers, who block."""

    def __init__(self, client: BlockingRedis, keys: Keys) -> None:
        text = ScriptText("note_read", keys)
        self._script = client.register_script(text.text)
        self._keys = text.keys

    def note(self, positions: Mapping[str, str], turn: str | None = None, ttl: int = 0) -> str:
        """Note where a reader stands, by field of the readers' hash; with `turn`, take or keep that for `ttl` ms,
        at 0 give it back.

        Return "", or who else has the turn: then nothing was done. Goes well when Redis is out of memory, too,
        and then drops what all readers have read.
        """
        arguments: dict[str, Any] = {"positions": dict(positions), "ttl": ttl}
        if turn is not None:
            arguments["turn"] = turn
        holder: bytes = self._script(keys=self._keys, args=[packed(arguments)])
        return holder.decode(errors="replace")
