"""The program `crawlproject`, also `python -m crawlproject`: Scrapy's, with our commands, in any folder."""

from __future__ import annotations

import configparser
import difflib
import gc
import os
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from crawlproject import __version__, program

if TYPE_CHECKING:
    from scrapy.settings import Settings

_ADDON = "crawlproject.Addon"


def main() -> None:
    """Run the command that the arguments name; without one, list the commands."""
    words = sys.argv[1:]
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_commands())
        return
    if words[0] in {"-V", "--version"}:
        print(f"crawlproject {__version__}")
        return
    known = {name for group in program.COMMANDS.values() for name in group} | _of_plugins().keys()
    known |= entry_points(group="scrapy.commands").names
    if (name := next((word for word in words if not word.startswith("-")), "")) not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"{program.name()} --help lists the commands"
        sys.exit(f"{program.name()}: unknown command {name!r}: {hint}")
    _execute()


def _commands() -> str:
    """Return the list of commands, in groups."""
    groups = {**program.COMMANDS, "Plug-ins": _of_plugins()}
    lines = [f"crawlproject {__version__}: a polite, distributed image crawler on Scrapy and Redis", ""]
    lines += [f"Usage: {program.name()} COMMAND [options] [arguments]", ""]
    for group, commands in groups.items():
        if commands:
            lines += [f"{group}:", *(f"  {name:<13} {line}" for name, line in commands.items()), ""]
    lines.append(f"{program.name()} COMMAND --help explains a command.")
    return program.as_called("\n".join(lines))


def _of_plugins() -> Mapping[str, str]:
    """Return the commands of plug-ins; packages other than this one have to be imported for that."""
    if not entry_points(group="crawlproject.plugins"):
        return program.of_contrib()
    from crawlproject import plugins

    return program.commands_in(plugins.command_folders())


def _execute() -> None:
    """Hand over to Scrapy.

    A project of the user's own, found by its scrapy.cfg or by SCRAPY_SETTINGS_MODULE, keeps its settings, and gets
    the add-on; in any other folder the settings are crawlproject.settings.
    """
    gc.disable()  # of what is imported nothing is garbage; to look for that is a tenth of a short command's time
    from scrapy import cmdline, commands
    from scrapy.addons import AddonManager
    from scrapy.utils.conf import closest_scrapy_cfg
    from scrapy.utils.project import ENVVAR, get_project_settings

    class Help(commands.ScrapyHelpFormatter):
        def format_help(self) -> str:
            return program.as_called(super().format_help())

    # Scrapy writes its own name into every usage.
    cmdline.ScrapyHelpFormatter = Help  # type: ignore[attr-defined]
    if not os.environ.get(ENVVAR) and not closest_scrapy_cfg():
        os.environ[ENVVAR] = "crawlproject.settings"
    try:
        settings: Settings = get_project_settings()
    except configparser.Error as error:
        first = error.message.partition("\n")[0]
        sys.exit(f"{program.name()}: {closest_scrapy_cfg() or '~/.scrapy.cfg'} cannot be read: {first}")
    except ModuleNotFoundError as error:
        module = os.environ.get(ENVVAR, "")
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the settings want it
        sys.exit(f"{program.name()}: there are no settings {module} ({error}): see scrapy.cfg and {ENVVAR}")
    if editor := os.environ.get("EDITOR"):
        settings["EDITOR"] = editor
    settings.set("COMMANDS_MODULE", "crawlproject.commands", priority="project")
    if os.environ[ENVVAR] != "crawlproject.settings":
        settings["ADDONS"].set(_ADDON, settings["ADDONS"].get(_ADDON, 0), priority="project")
        AddonManager.load_pre_crawler_settings(settings)  # also for commands that crawl nothing
    gc.freeze()
    gc.enable()
    cmdline.execute(settings=settings)


if __name__ == "__main__":
    main()
