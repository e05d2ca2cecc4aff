"""What the overflow keeps in Redis beside its extents."""

from __future__ import annotations

import re
from typing import Any

from crawlproject.state.client import State
from crawlproject.state.keys import Keys

_FAULT_S = 60
_FOLDER = re.compile(rb"[\w-]+")


async def pack_folder(state: State, keys: Keys) -> str | None:
    """Return the folder of the store in which the packs of a frontier are; None: there is none yet."""
    redis: Any = state.redis
    folder = await redis.get(keys.pack_folder)
    return folder.decode() if folder and _FOLDER.fullmatch(folder) else None


async def note_fault(state: State, keys: Keys, fault: str) -> None:
    """Note for a minute why extents cannot be stored or read; "": they can."""
    redis: Any = state.redis
    if fault:
        await redis.set(keys.spill_fault, fault, ex=_FAULT_S)
    else:
        await redis.delete(keys.spill_fault)
