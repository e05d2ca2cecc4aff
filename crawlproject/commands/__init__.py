"""Commands of `scrapy`. This module holds what they share."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from redis import Redis, RedisError
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.utils.misc import load_object

from crawlproject import config, logs
from crawlproject.errors import ConfigError, CrawlprojectError
from crawlproject.sources.names import source_name
from crawlproject.state.client import State, connect_blocking
from crawlproject.state.health import known_fault
from crawlproject.state.keys import Keys

P = ParamSpec("P")
C = TypeVar("C", bound=ScrapyCommand)

QUIET: dict[str, Any] = {"LOG_ENABLED": False}


def reports_errors(run: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """Have a command end with one clear sentence and exit code 1 where it fails for a reason we know."""

    @functools.wraps(run)
    def wrapped(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        gc.freeze()  # what is imported stays; looking through it at the end is a third of a short command's time
        try:
            run(self, *args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever read it (`| head`) has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.exitcode = 141
        except (CrawlprojectError, RedisError, OSError) as error:
            name = type(self).__module__.rpartition(".")[2]
            print(f"scrapy {name}: {known_fault(error) or error}", file=sys.stderr)
            self.exitcode = 1
        except KeyboardInterrupt:
            self.exitcode = 130

    return wrapped


def loop_as_set(command: ScrapyCommand) -> None:
    """Make the event loop that the settings name; for the end of `process_options`.

    Scrapy would make one of asyncio's first, see that it is another, and leave it open: at exit Python complains.
    """
    assert command.settings is not None
    asyncio.set_event_loop(load_object(command.settings["ASYNCIO_EVENT_LOOP"])())


def log_as_set(command: ScrapyCommand) -> None:
    """Have a command that stays log as its settings say; for the end of its `process_options`.

    Raises:
        UsageError: no log can be written there.

    """
    assert command.settings is not None
    try:
        with suppress(ConfigError):  # `run` says it
            logs.install(command.settings)
    except OSError as error:
        raise UsageError(f"no log can be written: {error}", print_help=False) from None


def connected(command: ScrapyCommand, spider: str = "images") -> tuple[config.Config, Redis, Keys]:
    """Return what a command needs to speak with the frontier of `spider`.

    Raises:
        ConfigError, RedisUnavailable: see there.

    """
    assert command.settings is not None
    settings = config.load(command.settings)
    return settings, connect_blocking(settings), Keys(settings.namespace, spider)


@asynccontextmanager
async def opened_state(command: ScrapyCommand, spider: str = "images") -> AsyncIterator[State]:
    """Connect a command to the frontier of `spider`, scripts included, for as long as the block lasts.

    Raises:
        ConfigError, RedisUnavailable: see there.

    """
    assert command.settings is not None
    state = State(config.load(command.settings), spider)
    await state.open()
    try:
        yield state
    finally:
        await state.close()


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Have SIGINT and SIGTERM set an event, so that the block ends in good order; a second one ends it at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def asked(number: int, frame: object) -> None:
        stop.set()
        restore()

    for number in before:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        restore()


def source_names(args: list[str]) -> list[str]:
    """Return the sources that the arguments of a command name, each once, in their one spelling.

    Raises:
        UsageError: one of them is no name.

    """
    for arg in args:
        if arg.startswith("-"):  # Scrapy hands over the options it does not know
            raise UsageError(f"there is no option {arg}")
    try:
        return list(dict.fromkeys(source_name(arg) for arg in args))
    except ValueError as error:
        raise UsageError(str(error)) from None


async def remark_unknown(state: State, sources: list[str]) -> None:
    """Say on stderr which of `sources` neither the catalogue nor a seed has named: perhaps a slip of the pen."""
    redis: Any = state.redis
    listed = await redis.smismember(state.keys.sources, sources)
    sized = await redis.hmget(state.keys.limits, sources)
    for source, in_set, limit in zip(sources, listed, sized, strict=True):
        if not in_set and limit is None:
            remark(f"neither the catalogue nor a seed has named {source} so far")


def remark(text: str) -> None:
    """Print what the operator should know beside the answer."""
    print(f"note: {text}", file=sys.stderr)
