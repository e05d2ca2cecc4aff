"""Scrapy's add-on, for projects with settings of their own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.project import ENVVAR

from crawlproject import config, program
from crawlproject.errors import ConfigError

# Of settings.py, what names a project: the add-on leaves it to the user's.
_OF_A_PROJECT = frozenset({"BOT_NAME", "SPIDER_MODULES", "NEWSPIDER_MODULE", "COMMANDS_MODULE"})


class Addon:
    """Adds crawlproject to a Scrapy project: `ADDONS = {"crawlproject.Addon": 0}`.

    It sets what `crawlproject/settings.py` sets, at the priority of add-ons: a value in the project's settings.py
    wins, and dicts of components are merged, name by name. Environment variables are stronger than settings.py,
    as in crawlproject itself. Everything is set before there is a crawler: reactor, event loop and resolver too.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set what is not set; what is set and cannot be ends the process with one sentence."""
        from crawlproject import settings as ours  # here: it reads the environment

        table = {name: value for name, value in vars(ours).items() if name.isupper() and name not in _OF_A_PROJECT}
        environ = config.environment()
        for name, value in table.items():
            if name in environ:
                settings.set(name, value, priority="project")
            elif isinstance(value, Mapping):
                _merge(settings, name, value)
            else:
                settings.set(name, value, priority="addon")
        _check(settings)

    def update_settings(self, settings: BaseSettings) -> None:
        """Check the settings of a crawler, with those of its spider and of the command line."""
        _check(settings)
        if not settings.getbool("FRONTIER_ALONE"):
            _or_exit(lambda settings: config.check_contact(config.load(settings)), settings)


def _check(settings: BaseSettings) -> None:
    for check in (config.load, config.check_components, config.check_guarded):
        _or_exit(check, settings)


def _or_exit(check: Callable[[BaseSettings], Any], settings: BaseSettings) -> None:
    try:
        check(settings)
    except ConfigError as error:  # Scrapy would print a traceback
        sys.exit(program.as_called(f"{program.name()}: {_file_of(settings, str(error))}{error}"))


def _file_of(settings: BaseSettings, message: str) -> str:
    """Return the beginning of a message about a setting in the project's settings file: that file."""
    module = sys.modules.get(os.environ.get(ENVVAR, ""))
    name = re.split(r"\W", message)[0]
    of_file = settings.getpriority(name) == SETTINGS_PRIORITIES["project"] and name not in config.environment()
    if module is None or module.__file__ is None or not of_file:
        return ""
    path = Path(module.__file__)
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}: "


def _merge(settings: BaseSettings, name: str, components: Mapping[str, Any]) -> None:
    """Add `components` to a setting that is a dict; what the user says of one of them stays."""
    merged = BaseSettings(settings[name] or {}, priority=settings.getpriority(name) or 0)
    for path, order in components.items():
        merged.set(path, order, priority="addon")
    settings.set(name, merged, priority=settings.getpriority(name) or 0)
