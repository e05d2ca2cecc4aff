"""Commands of `scrapy`. This module holds what they share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from redis import Redis, RedisError
from scrapy.commands import ScrapyCommand

from crawlproject import config
from crawlproject.errors import CrawlprojectError
from crawlproject.store.client import connect_blocking
from crawlproject.store.keys import Keys

P = ParamSpec("P")
C = TypeVar("C", bound=ScrapyCommand)

QUIET: dict[str, Any] = {"LOG_ENABLED": False}


def reports_errors(run: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """Have a command end with one clear sentence and exit code 1 where it fails for a reason we know."""

    @functools.wraps(run)
    def wrapped(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            run(self, *args, **kwargs)
        except (CrawlprojectError, RedisError, OSError) as error:
            name = type(self).__module__.rpartition(".")[2]
            print(f"scrapy {name}: {error}", file=sys.stderr)
            self.exitcode = 1
        except KeyboardInterrupt:
            self.exitcode = 130

    return wrapped


def connected(command: ScrapyCommand, spider: str = "images") -> tuple[config.Config, Redis, Keys]:
    """Return what a command needs to speak with the frontier of `spider`.

    Raises:
        ConfigError, RedisUnavailable: see there.

    """
    assert command.settings is not None
    settings = config.load(command.settings)
    return settings, connect_blocking(settings), Keys(settings.namespace, spider)
