"""The program that a user has called, `crawlproject` or `scrapy`: its name, and its commands in groups."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "crawlproject"
_SETTINGS = f"{NAME}.settings"

# Each command with its summary. Here, so that `crawlproject --help` imports no Scrapy.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Crawl": {
        "feed": "Put seeds into the crawl, from files, or from Kafka by its plug-in",
        "crawl": "Run a worker; start as many as you like",
        "events": "Append new events to a file of JSON lines, or by plug-ins to a dataset or Kafka",
        "dead": "List dead letters, retry or drop them",
        "redis": "Start or stop the embedded Redis of this folder, or print its socket",
    },
    "Watch": {
        "top": "Watch rates, errors and work of all sources, live in the terminal",
        "monitor": "Report the state of the crawl every five seconds; serve the dashboard and /metrics",
        "sources": "Show the rate, state and work of each source",
        "explain": "Explain what happens to a URL, or to a source, and why",
        "stats": "Print the totals of all workers as JSON",
        "shards": "Show the shards of a crawl: nodes, workers, work, replicas",
    },
    "Control": {
        "rate": "Set a source's rate in requests a second; auto returns to the rate by size",
        "halt": "Stop requests to sources, until scrapy resume",
        "resume": "Resume halted sources, at their full rate",
        "exclude": "Keep the crawl away from domains and sources, until scrapy include",
        "excluded": "List excluded domains and sources",
        "include": "Crawl excluded domains and sources again",
        "purge": "Empty the queue of a source",
    },
    "Write spiders (Scrapy's commands)": {
        "startproject": "Create a project for spiders of your own",
        "genspider": "Create a spider from a template",
        "list": "List the spiders of this project",
        "edit": "Open a spider in an editor",
        "check": "Check the contracts of spiders",
        "runspider": "Run a spider from a Python file",
        "shell": "Try selectors on a response, in a Python console",
        "fetch": "Print a response",
        "parse": "Print what a spider yields for a URL",
        "view": "Open a response in a browser",
        "settings": "Print a setting",
        "bench": "Measure Scrapy itself on this machine",
        "version": "Print the version of Scrapy",
    },
    "This program": {
        "completion": "Print the completion script of a shell: bash, zsh or fish",
    },
}
_SUMMARY = re.compile(r'^    summary = "(.+)"$', re.MULTILINE)  # of a command in a plug-in's module


def name() -> str:
    """Return what a user types before the name of a command."""
    called = Path(sys.argv[0]) if sys.argv else Path()
    if called.name == "__main__.py" and called.parent.name == NAME:
        return f"python -m {NAME}"
    return NAME if called.stem == NAME else "scrapy"


def as_called(text: str, before: str = "") -> str:
    """Return a text for people with each `scrapy COMMAND` spelled as the user calls that command.

    In a project of the user's own, `scrapy` has no commands but Scrapy's. `before` is what commands need in front
    of them, such as `CRAWL_NAMESPACE=mine `.
    """
    program = name()
    if program == "scrapy" and os.environ.get("SCRAPY_SETTINGS_MODULE", _SETTINGS) != _SETTINGS:
        program = NAME
    spelled = before + program
    return text if spelled == "scrapy" else _orders().sub(lambda _: spelled, text)


def load_one_command() -> None:
    """Have Scrapy, if it runs a command, import that module alone: with all, a halt takes a third longer."""
    if (cmdline := sys.modules.get("scrapy.cmdline")) is None:
        return
    load_all = cmdline._get_commands_dict

    def load(settings: Any, inproject: bool) -> Any:
        called = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        module = f"crawlproject.commands.{called}"
        is_ours = settings["COMMANDS_MODULE"] == "crawlproject.commands"
        if is_ours and called.isidentifier() and find_spec(module):
            return cmdline._get_commands_from_module(module, inproject)
        return load_all(settings, inproject)

    cmdline._get_commands_dict = load  # type: ignore[attr-defined]


def summary_of(command: str) -> str:
    """Return the line about a command in the list of commands.

    Raises:
        KeyError: it is a plug-in's, or no command.

    """
    return {name: line for group in COMMANDS.values() for name, line in group.items()}[command]


def commands_in(folders: Iterable[str | Path]) -> dict[str, str]:
    """Return the commands of plug-ins in `folders`, with their summaries. Modules are read, not imported."""
    paths = sorted(path for folder in folders for path in Path(folder).glob("[a-z]*.py"))
    found = {path.stem: _SUMMARY.search(path.read_text(encoding="utf-8")) for path in paths}
    return {name: match[1] if match else "" for name, match in found.items()}


@functools.cache
def of_contrib() -> Mapping[str, str]:
    """Return the commands of the plug-ins in `contrib`, with their summaries."""
    return commands_in(Path(__file__).parent.glob("contrib/*/commands"))


@functools.cache
def _orders() -> re.Pattern[str]:
    names = [*(name for group in COMMANDS.values() for name in group), *of_contrib()]
    return re.compile(rf"\b(?:scrapy|(?:python -m )?{NAME})(?=\s+(?:{'|'.join(map(re.escape, names))})\b)")
