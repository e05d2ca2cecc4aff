"""Has something happen before a line of the code under test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


def before_line(files: tuple[str, ...], number: int, act: Callable[[], object]) -> Callable[..., Any]:
    """Return a trace function (`sys.settrace`): when `number` lines of `files` have run, it calls `act`, once."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line":
            left -= 1
            if left == -1:
                act()
        return trace

    return trace


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
