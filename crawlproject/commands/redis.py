"""`scrapy redis`: the embedded Redis of this project folder."""

from __future__ import annotations

import argparse
import json
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli, config
from crawlproject.errors import ConfigError
from crawlproject.state import embedded
from crawlproject.state.client import crawl_dir


class Command(cli.Command):
    """start and stop control the embedded Redis under .crawl/, which serves the crawl when REDIS_URL is not set;
    socket prints its path for redis-cli.
    """

    arguments = "[options] start|stop|socket"
    examples = ('redis-cli -s "$(scrapy redis socket)" lpush images:start_urls URL',)
    json_help = "print url, socket or stopped as one JSON document"

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        if args != ["stop"] and config.load(self.settings).redis_url is not None:
            raise ConfigError(
                "REDIS_URL is set, so the Redis under .crawl/ is not in use: unset it, or use that Redis"
            )
        match args:
            case ["start"]:
                said: dict[str, Any] = {"url": embedded.ensure(crawl_dir())}
            case ["stop"]:
                said = {"stopped": embedded.stop(crawl_dir())}
            case ["socket"]:
                embedded.ensure(crawl_dir())
                said = {"socket": str(embedded.socket_path(crawl_dir()))}
            case _:
                raise UsageError("expected start, stop or socket")
        [value] = said.values()
        words = {
            True: "stopped; workers that still run wait until it is started again",
            False: "was not running",
        }.get(value, value)
        print(json.dumps(said) if opts.json else words)
