"""The functions that `CRAWL_ANALYSES` names: loads them, and has them look at a picture; in the decoder process.

They are an operator's own code and others' libraries. Whatever they do is no fault of the picture.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from PIL import Image

from crawlproject.imaging.messages import MOST_BYTES, check_json
from crawlproject.texts import printable

Analyse = Callable[[Image.Image], Any]


class BadAnalysis(Exception):
    """A function cannot be loaded; `str(error)` says which, and why."""


def load(names: Iterable[str]) -> dict[str, Analyse]:
    """Import the functions, each named as `module:function`, and return them by their last names.

    Raises BadAnalysis.
    """
    functions: dict[str, Analyse] = {}
    for name in names:
        module, _, last = name.partition(":")
        try:
            function = getattr(import_module(module), last)
        except BaseException as error:  # a module that exits is as bad as one that is missing
            raise BadAnalysis(f"{name} cannot be loaded: {_said(error)}") from error
        if not callable(function):
            raise BadAnalysis(f"{name} is not a function: {type(function).__name__}")
        functions[last] = function
    return functions


def run(functions: Mapping[str, Analyse], image: Image.Image) -> tuple[dict[str, Any], dict[str, str]]:
    """Call each function with a copy of the picture, in RGB; return results, and errors, by their names."""
    results: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, function in functions.items():
        try:
            value = json.loads(json.dumps(function(image.convert("RGB"))))  # as any reader gets it
            check_json(value, MOST_BYTES)
            results[name] = value
        except BaseException as error:  # what it raises is its own affair; SystemExit and MemoryError, too
            errors[name] = _said(error)
    return results, errors


def _said(error: BaseException) -> str:
    """Return an error in one line."""
    try:
        words = " ".join(str(error).split())
    except Exception:  # of a class that is broken, too
        words = ""
    return printable(f"{type(error).__name__}: {words}".strip(": "), 200)
