"""What the commands of `scrapy` share.

Not in `commands/`: Scrapy takes every subclass of ScrapyCommand that is defined there for a command.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import getpass
import json
import os
import re
import shlex
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, Protocol, TextIO, TypeVar

from scrapy import Spider
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader

from crawlproject import config, logs
from crawlproject.errors import ConfigError, CrawlprojectError, UnknownSource
from crawlproject.exclusions import exclusion_names, exclusion_of
from crawlproject.program import as_called, summary_of
from crawlproject.screen import Screen
from crawlproject.sources.names import source_name
from crawlproject.state.client import REDIS_TROUBLE, State, keys_for, without_secrets
from crawlproject.state.health import known_fault
from crawlproject.state.over_shards import ask_for
from crawlproject.state.shards import shard_of
from crawlproject.state.source_table import has_rates, unknown_sources
from crawlproject.texts import scrapy_command, visible

P = ParamSpec("P")
C = TypeVar("C", bound=ScrapyCommand)

_OPTION = re.compile(r"-[^\d.]")  # not "-", which is stdin, nor a number


def reports_errors(run: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """Have a command end with one clear sentence and exit code 1 where it fails for a known reason."""

    @functools.wraps(run)
    def wrapped(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        gc.freeze()  # what is imported stays; looking through it at the end is a third of a short command's time
        try:
            run(self, *args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader (`| head`) has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.exitcode = 141
        except (CrawlprojectError, *REDIS_TROUBLE) as error:
            name = type(self).__module__.rpartition(".")[2]
            show(as_called(f"scrapy {name}: {known_fault(error) or error}"), sys.stderr)
            self.exitcode = 1
        except KeyboardInterrupt:
            self.exitcode = 130

    return wrapped


class Command(ScrapyCommand):
    """A command for operators, which logs nothing. Its class attributes and its docstring are its help."""

    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    arguments = "[options]"  # as the line of usage shows them
    summary = ""  # of a plug-in's command: a line for the list of commands; program.py has those of the others
    examples: tuple[str, ...]  # for `--help`; what the command does is the docstring of the subclass
    json_help = "print one JSON document"  # of --json
    spider_help: str | None = None  # of --spider; None: there is no such option
    is_of_one_spider: bool = True  # if it has --spider: it does nothing for others
    indent: int | None = None  # of the JSON

    def syntax(self) -> str:
        """Return the arguments."""
        return self.arguments

    def short_desc(self) -> str:
        """Return the summary."""
        return self.summary or summary_of(type(self).__module__.rpartition(".")[2])

    def long_desc(self) -> str:
        """Return what `--help` says: the docstring of the subclass, and its examples."""
        summary = " ".join((self.__doc__ or self.short_desc()).split())
        return f"{summary} {'Example' if len(self.examples) == 1 else 'Examples'}: {'; '.join(self.examples)}"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Also check that there are no unknown options; what follows `--` is none, whatever it looks like.

        Raises:
            UsageError: there is one.

        """
        super().process_options(args, opts)
        end = args.index("--") if "--" in args else len(args)  # Scrapy hands over what its parser does not know
        for arg in args[:end]:
            if _OPTION.match(arg):
                raise UsageError(f"unknown option: {arg}")
        del args[end : end + 1]
        if self.spider_help is not None and opts.spider is None:
            opts.spider = self._default_spider()

    def _default_spider(self) -> str:
        """Return the spider where none is named: `images`, or the only one of a project without it."""
        assert self.settings is not None
        if "crawlproject.spiders" in self.settings.getlist("SPIDER_MODULES"):
            return "images"  # without loading all spiders
        try:
            names = sorted(get_spider_loader(self.settings).list())
        except Exception as error:  # whatever a module of the project does
            raise UsageError(
                f"the project's spiders cannot be loaded ({type(error).__name__}: {error}): repair them, or "
                "name the spider with --spider",
                print_help=False,
            ) from None
        if len(names) == 1:
            return names[0]
        if names and "images" not in names and self.is_of_one_spider:
            raise UsageError(f"expected --spider with one of {', '.join(names)}")
        return "images"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add --json, and --spider where the command has it."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help=self.json_help)
        if self.spider_help is not None:
            parser.add_argument(
                "--spider",
                help=f"{self.spider_help}; by default images, or the project's only one",
            )


class HasOptions(Protocol):
    """A class of a plug-in with options of a command; `about` is the help of that which chooses it."""

    about: ClassVar[str]
    options: ClassVar[Mapping[str, Mapping[str, Any]]]


def add_plugin_options(
    parser: argparse.ArgumentParser, chosen: Iterable[str], offered: Mapping[str, type[HasOptions]]
) -> None:
    """Add the options of what plug-ins offer, each once, and for each name in `chosen` one that chooses it."""
    options: dict[str, Mapping[str, Any]] = {
        name: {"action": "store_true", "help": offered[name].about} for name in chosen
    }
    for one in offered.values():
        options |= one.options
    for name, option in options.items():
        try:
            parser.add_argument(f"--{name}", **option)
        except argparse.ArgumentError as error:
            parser.error(f"a plug-in adds an option that is there already: {error.message}")


def check_plugin_options(
    chosen: Collection[str],
    opts: argparse.Namespace,
    offered: Mapping[str, type[HasOptions]],
    shown: Callable[[str], str] = "--{}".format,
) -> None:
    """Check that no option is given of anything but what is `chosen`; `shown` says how each is chosen.

    Raises:
        UsageError: one is.

    """
    for option in dict.fromkeys(option for one in offered.values() for option in one.options):
        having = [name for name, one in offered.items() if option in one.options]
        if getattr(opts, option.replace("-", "_")) not in {None, False} and not {*chosen} & {*having}:
            raise UsageError(f"--{option} goes with {' or '.join(map(shown, having))}")


def no_arguments(args: list[str]) -> list[str]:
    """Raise UsageError where there are any."""
    if args:
        raise UsageError("expected no arguments")
    return args


class Question(Command):
    """A command that asks the frontier once and prints the answer, as JSON or in words.

    `check` returns the arguments as they are understood, or raises UsageError.
    """

    check: Callable[[list[str]], list[str]] = staticmethod(no_arguments)

    async def ask(self, state: State, args: list[str], opts: argparse.Namespace) -> Any:
        """Return the answer, as JSON has it; `args` have been checked."""
        raise NotImplementedError

    def words(self, said: Any, opts: argparse.Namespace) -> str:
        """Return the answer for people."""
        raise NotImplementedError

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Ask, and print."""
        said = asyncio.run(self._answer(self.check(args), opts))
        show(json.dumps(said, indent=self.indent) if opts.json else as_called(self.words(said, opts)))

    async def _answer(self, args: list[str], opts: argparse.Namespace) -> Any:
        async with opened_state(self, getattr(opts, "spider", "images")) as state:
            return await self.ask(state, args, opts)


def alone(command: type[ScrapyCommand], module: str, example: str) -> type[ScrapyCommand]:
    """Return a command of Scrapy's, for a module of commands, with a frontier of its own in memory.

    Its requests keep to the rates of their sources like all others; nothing is stored in the frontier that workers
    share.
    """
    more: dict[str, Any] = {
        "__module__": module,  # Scrapy names a command after it
        "default_settings": {**command.default_settings, "FRONTIER_ALONE": True},
        "long_desc": lambda self: f"{command.long_desc(self)} Example: {example}",
        "run": reports_errors(command.run),
    }
    return type("Command", (command,), more)


def log_as_set(command: ScrapyCommand, spider: str = "") -> Screen | None:
    """Have a command that keeps running log as its settings say; for the end of its `process_options`.

    Return the terminal of a worker of `spider` whose log is in a file; see `logs.install`.

    Raises:
        UsageError: no log can be written there.

    """
    assert command.settings is not None
    try:
        with suppress(ConfigError):  # `run` reports it
            return logs.install(command.settings, spider)
    except OSError as error:
        raise UsageError(f"no log can be written: {error}", print_help=False) from None
    return None


def check_spider(command: ScrapyCommand, spider: str) -> type[Spider]:
    """Return the spider of that name, for a command that gives it work.

    Raises:
        UsageError: it has none.

    """
    assert command.settings is not None
    loader = get_spider_loader(command.settings)
    if spider not in (names := loader.list()):
        raise UsageError(
            f"--spider {spider}: this project has no such spider, only {', '.join(sorted(names))}; give the "
            "SPIDER_MODULES of its worker, as in -s SPIDER_MODULES=my.spiders"
        )
    return loader.load(spider)


@asynccontextmanager
async def opened_state(command: ScrapyCommand, spider: str = "images") -> AsyncIterator[State]:
    """Open the frontier of `spider` for an asynchronous command, and close it at the end of the block.

    Raises:
        ConfigError, RedisUnavailable: see State.open.
        UsageError: neither this project nor the crawl has such a spider.

    """
    assert command.settings is not None
    state = State(config.load(command.settings).of_any_shard, spider)
    await state.open()
    try:
        if spider != "images":
            from crawlproject.status.reporter import present_spiders  # here: few need it, and it loads slowly

            if spider not in await present_spiders(state, [spider]):
                check_spider(command, spider)
        yield state
    finally:
        await state.close()


class Connection(NamedTuple):
    """The connection of a command that blocks, as it waits for its input; `run` runs a coroutine meanwhile."""

    state: State
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def connected(settings: config.Config, spider: str = "images") -> Iterator[Connection]:
    """Open the frontier of `spider` for a command that blocks, until the end of the block.

    Raises:
        ConfigError, RedisUnavailable: see State.open.

    """
    with asyncio.Runner() as runner:
        state = State(settings.of_any_shard, spider)
        runner.run(state.open())
        try:
            yield Connection(state, runner.run)
        finally:
            runner.run(state.close())


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Have SIGINT and SIGTERM set an event, so that the block ends in good order; a second one ends it at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop_once(number: int, frame: object) -> None:
        stop.set()
        restore()

    for number in before:
        signal.signal(number, stop_once)
    try:
        yield stop
    finally:
        restore()


def some_sources(args: list[str]) -> list[str]:
    """Return the sources that the arguments of a command name, as `source_names`, of which there must be some."""
    if not args:
        raise UsageError("expected at least one SOURCE")
    return source_names(args)


def source_names(args: list[str]) -> list[str]:
    """Return the sources that the arguments of a command name, each once, normalised.

    Raises:
        UsageError: an argument cannot be the name of a source.

    """
    try:
        return list(dict.fromkeys(source_name(arg) for arg in args))
    except ValueError as error:
        raise UsageError(str(error)) from None


def excluded_names(args: list[str]) -> list[str]:
    """Return the domains and sources that the arguments of a command name, each once, in the spellings they have.

    Raises:
        UsageError: there are none, or an argument can be neither.

    """
    if not args:
        raise UsageError("expected at least one DOMAIN or SOURCE")
    try:
        return list(dict.fromkeys(name for arg in args for name in exclusion_names(arg)))
    except ValueError as error:
        raise UsageError(str(error)) from None


def operator(command: ScrapyCommand) -> str:
    """Say for the audit trail who runs a command, as in `scrapy halt, alice@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without such a user
        user = f"uid {os.getuid()}"
    return as_called(f"scrapy {type(command).__module__.rpartition('.')[2]}, {user}@{socket.gethostname()}")


def redis_cli(command: ScrapyCommand, source: str, verb: str, key: str, *args: str) -> str:
    """Return the order for redis-cli that does what a command does: to `key` + source, or to the set `key`.

    `key` is the name of one of Keys. Of several Redis, a note says which one it is for.
    """
    assert command.settings is not None
    settings = config.load(command.settings)
    name = getattr(keys_for(settings, "images", source), key) + (source if key.endswith("_of") else "")
    if len(settings.redis_urls) > 1:
        number = shard_of(source, settings.shards)
        remark(f"{source} is in shard {number}, at {without_secrets(settings.redis_urls[number])}")
    on_cluster = ["-c"] if any(map(config.cluster_address, settings.redis_urls)) else []
    return shlex.join(["redis-cli", *on_cluster, verb, name, *args])


async def remark_unknown(state: State, sources: list[str]) -> list[str]:
    """Say on stderr which of `sources` are none so far, and return them."""
    found = await ask_for(state, sources, unknown_sources)
    there = {name for names in found.values() for name in names}
    unknown = [source for source in sources if source in there]
    if unknown:
        await remark_unread(state)
    for source in unknown:
        remark(f"there is no source {source}; a name that appears only in seeds is not a source")
    return unknown


async def remark_unread(state: State) -> None:
    """Say on stderr if there is a catalogue that no worker has read yet."""
    if state.config.sources is not None and not await has_rates(state.shards[0]):
        remark("no worker has read CRAWL_SOURCES yet")


async def check_known(state: State, sources: list[str], remedy: str = "") -> None:
    """Check that something is known of all `sources`, before an order for them; `remedy` ends the message.

    A note says which of them are excluded.

    Raises:
        UnknownSource: nothing is.

    """
    found = await ask_for(state, sources, unknown_sources)
    for name in sorted(name for names in found.values() for name in names):
        await remark_unread(state)
        owner = (await state.shard_for(name).scripts.attribute(None, name)).source
        belongs = f"; {name} belongs to {owner}" if owner != name else ""
        raise UnknownSource(
            f"the crawl knows no source {name}, so nothing has changed{belongs}; scrapy sources lists known "
            f"sources{remedy}"
        )
    for name in sources:
        if await exclusion_of(state.shard_for(name), name, ""):
            remark(f"nothing goes out, as {name} is excluded: {scrapy_command('include', of=[name])}")


def in_columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines, in which each column is as wide as its widest cell."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def save(place: str, data: bytes, option: str) -> None:
    """Write to the file that an option of a command names, or to stdout, which is `-`.

    Raises:
        UsageError: it cannot be written.

    """
    if place == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        Path(place).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{option}: {error}", print_help=False) from None


def remark(text: str) -> None:
    """Print what the operator should know beside the answer."""
    show(as_called(f"note: {text}"), sys.stderr)


def show(text: str, to: TextIO | None = None) -> None:
    """Print what people read, on stdout if `to` is None: names from Redis and seeds are strangers' texts."""
    print(visible(text), file=to, flush=to is not None)
