"""Waiting for a condition, in place of sleeping for as long as it usually takes to come true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

PATIENCE_S = 120.0  # on an idle machine nothing that the tests wait for takes an eighth of it
_TICK_S = 0.02
_ASYNC_TICK_S = 0.005  # conditions of coroutines are cheap: no file is read


def until(
    condition: Callable[[], T | None], patience_s: float = PATIENCE_S, *, despite: Errors = (), hint: str = ""
) -> T:
    """Return the first true value of `condition`; an error in `despite` means: not yet.

    Raises:
        AssertionError: `condition` was not true within `patience_s` seconds; `hint` says where to look.

    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            value = condition()
        except despite:
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, f"not true within {patience_s:g} s; {hint}"
        time.sleep(_TICK_S)


async def until_async(
    condition: Callable[[], object], patience_s: float = PATIENCE_S, *, despite: Errors = ()
) -> Any:
    """Do as `until`, while the event loop runs; `condition` may be a coroutine function.

    Raises:
        AssertionError: `condition` was not true within `patience_s` seconds.

    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            value = condition()
            if isawaitable(value):
                value = await value
        except despite:
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, f"not true within {patience_s:g} s"
        await asyncio.sleep(_ASYNC_TICK_S)


async def until_equal(read: Callable[[], object], wanted: object) -> None:
    """Wait until `read`, which may be a coroutine function, returns what is `wanted`."""

    async def is_equal() -> bool:
        found = read()
        return bool((await found if isawaitable(found) else found) == wanted)

    await until_async(is_equal)
