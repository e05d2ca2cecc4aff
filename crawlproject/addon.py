"""Scrapy's add-on, for projects with settings of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from scrapy.settings import BaseSettings

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
            _or_exit(config.check_contact, config.load(settings))


def _check(settings: BaseSettings) -> None:
    for check in (config.load, config.check_components, config.check_guarded):
        _or_exit(check, settings)


def _or_exit(check: Callable[[Any], Any], value: Any) -> None:
    try:
        check(value)
    except ConfigError as error:  # Scrapy would print a traceback
        sys.exit(program.as_called(f"{program.name()}: {error}"))


def _merge(settings: BaseSettings, name: str, components: Mapping[str, Any]) -> None:
    """Add `components` to a setting that is a dict; what the user says of one of them stays."""
    merged = BaseSettings(settings[name] or {}, priority=settings.getpriority(name) or 0)
    for path, order in components.items():
        merged.set(path, order, priority="addon")
    settings.set(name, merged, priority=settings.getpriority(name) or 0)
