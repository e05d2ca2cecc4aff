"""A polite, distributed image crawler on Scrapy and Redis. docs/flow.md follows one image through it."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return the add-on, `crawlproject.Addon`, loaded when it is used: decoders import no Scrapy."""
    if name == "Addon":
        return import_module("crawlproject.addon").Addon
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
