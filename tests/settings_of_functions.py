"""Functions of Redis with other settings than those of the worker that calls them."""

from __future__ import annotations

from copy import copy
from typing import TypeVar

import msgpack

from crawlproject.state.functions import Caller

Functions = TypeVar("Functions", bound=Caller)


def within(scripts: Functions, **settings: int | bool) -> Functions:
    """Return `scripts`, with these settings in place of its own."""
    other = copy(scripts)
    other._settings = msgpack.packb(msgpack.unpackb(scripts._settings) | settings)
    return other
