"""Shifts the clocks of a Python process by `CLOCK_SKEW` seconds; with this folder on PYTHONPATH.

Wall clock and `time.monotonic` alike: whoever compares the latter with the event loop's clock, which is uvloop's
own and cannot be shifted from here, is found out. What C code asks the system for itself stays, too.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

_SECONDS = float(os.environ.get("CLOCK_SKEW", "0"))
_real = datetime.datetime


def _shifted(clock: Callable[[], Any], skew: float) -> Callable[[], Any]:
    def shifted() -> Any:
        return clock() + skew

    return shifted


class _Instances(type):
    """Lets `isinstance` know the real class's objects, which is what C code makes."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real)


class _Datetime(_real, metaclass=_Instances):
    __slots__ = ()  # as large as the real one: C code looks

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _real.now(tz) + datetime.timedelta(seconds=_SECONDS)

    @classmethod
    def utcnow(cls) -> Any:
        return _real.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=_SECONDS)


if _SECONDS:
    for _name in ("time", "monotonic"):
        setattr(time, _name, _shifted(getattr(time, _name), _SECONDS))
        setattr(time, _name + "_ns", _shifted(getattr(time, _name + "_ns"), int(_SECONDS * 1e9)))
    datetime.datetime = _Datetime  # type: ignore[misc]
