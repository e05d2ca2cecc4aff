"""`scrapy bench`: Scrapy's own speed on this machine, without this project."""

from __future__ import annotations

import argparse

from scrapy.commands import bench
from scrapy.settings import SETTINGS_PRIORITIES, default_settings

_KEPT = {"TELNETCONSOLE_ENABLED", "REMOTE_CONTROL_ENABLED"}  # nobody is to speak to it


class Command(bench.Command):
    """Scrapy's command, with Scrapy's settings in place of the project's.

    Ours would refuse its server, which is on loopback, and send it a request every few seconds.
    """

    def long_desc(self) -> str:
        return f"{super().long_desc()} of Scrapy itself, without this project. Example: scrapy bench"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        for name in set(dir(default_settings)) - set(self.default_settings) - _KEPT:
            if self.settings.getpriority(name) == SETTINGS_PRIORITIES["project"]:
                self.settings.set(name, getattr(default_settings, name), priority="project")
        super().process_options(args, opts)
