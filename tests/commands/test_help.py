"""What `--help` says of each command."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Any

import pytest

from crawlproject import commands

OURS: dict[str, Any] = {
    name: command
    for _, name, _ in pkgutil.iter_modules(commands.__path__)
    if inspect.isclass(command := getattr(import_module(f"crawlproject.commands.{name}"), "Command", None))
}


@pytest.mark.parametrize("name", OURS)
def test_the_help_of_every_command_has_an_example(name: str) -> None:
    said = OURS[name]().long_desc()
    assert "Example" in said
    assert f"scrapy {name}" in said
    assert len(OURS) > 10
