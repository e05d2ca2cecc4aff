"""Modes: how plug-ins fetch pictures in another way than whole (docs/plugins.md). The core has none."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlproject import plugins
from crawlproject.errors import ConfigError
from crawlproject.models import MODE
from crawlproject.politeness.outcomes import Outcome


class Mode(ABC):
    """How the spider `images` fetches the pictures whose seeds have a key of the mode's name.

    The value goes with the request, as `[name, value]` in its meta. What depends on it in the request's headers is
    up to a middleware of the plug-in. A request in a mode is no duplicate of that for the whole picture.
    """

    wanted_bytes = 0  # of a body; the rest is not downloaded (net/handler.py). 0: all

    @abstractmethod
    def stored(self, value: Any) -> Mapping[str, Any]:
        """Return the value as it is stored, given that of a seed, or a stored one.

        Raises:
            ValueError: it is invalid; the message says why.

        """

    @abstractmethod
    def outcome(self, response: Response, request: Request, gone: Collection[int]) -> Outcome:
        """Return the outcome of a response; one that `becomes` an image becomes the mode's `item`.

        `gone` are statuses of link rot at the source, beside 404 and 410.
        """

    @abstractmethod
    def item(self, said: Mapping[str, Any], response: Response, request: Request) -> Any:
        """Return an `Event`, or an `imaging.messages.Inspected`; `said` are the fields of an event
        that request and headers tell.
        """


@functools.cache
def modes() -> Mapping[str, Mode]:
    """Return all modes, by name.

    Raises:
        ConfigError: one cannot be loaded.

    """
    return {name: kind() for name, kind in plugins.loaded("modes", _refuse).items()}


def _refuse(fault: str) -> None:
    raise ConfigError(fault)


def mode_of(request: Request) -> Mode | None:
    """Return the mode of a request; None: the picture is fetched whole."""
    return modes()[request.meta[MODE][0]] if MODE in request.meta else None
