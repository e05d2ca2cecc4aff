"""`scrapy completion`: the completion script of a shell."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from importlib.util import find_spec

import shtab
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader

from crawlproject import cli, plugins, program

_SHELLS = ("bash", "zsh", "fish")
_PLAIN = re.compile(r"[\w.:-]+")  # names of spiders; in others a shell may find what it runs


class Command(cli.Command):
    """Print a script that completes commands, options, spiders and files in a shell."""

    arguments = "|".join(_SHELLS)
    examples = (
        'eval "$(scrapy completion bash)" in ~/.bashrc, zsh in ~/.zshrc',
        "scrapy completion fish > ~/.config/fish/completions/crawlproject.fish",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        ScrapyCommand.add_options(self, parser)  # without --json

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        if len(args) != 1 or args[0] not in _SHELLS:
            raise UsageError(f"expected {', '.join(_SHELLS[:-1])} or {_SHELLS[-1]}")
        print(shtab.complete(_parser(self.settings), shell=args[0]))


def _parser(settings: Settings) -> argparse.ArgumentParser:
    """Return a parser with all commands, as their own parsers have them."""
    called = program.name()
    parser = argparse.ArgumentParser(prog=program.NAME if " " in called else called)
    commands = parser.add_subparsers()
    groups = [*program.COMMANDS.values(), program.commands_in(plugins.command_folders())]
    for name, summary in ((name, summary) for group in groups for name, summary in group.items()):
        ours = f"crawlproject.commands.{name}"
        command: ScrapyCommand = import_module(ours if find_spec(ours) else f"scrapy.commands.{name}").Command()
        command.settings = settings
        one = commands.add_parser(name, help=program.as_called(summary), conflict_handler="resolve")
        command.add_options(one)
        _add_arguments(one, command.syntax(), settings)
    return parser


def _add_arguments(parser: argparse.ArgumentParser, syntax: str, settings: Settings) -> None:
    """Add the arguments that a line of usage names: words to choose from, a spider, or files."""
    if words := re.search(r"\b[a-z]+(?:\|[a-z]+)+\b", syntax):
        parser.add_argument("argument", nargs="?", choices=words[0].split("|"))
    elif "<spider>" in syntax:
        names = filter(_PLAIN.fullmatch, get_spider_loader(settings).list())
        parser.add_argument("spider", nargs="?", choices=sorted(names))
    elif "FILE" in syntax or "_file>" in syntax:
        parser.add_argument("file", nargs="*").complete = shtab.FILE  # type: ignore[attr-defined]
