"""`scrapy redis`: the embedded Redis of this project folder."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawlproject import config
from crawlproject.commands import QUIET, reports_errors
from crawlproject.errors import ConfigError
from crawlproject.state import embedded
from crawlproject.state.client import crawl_dir


class Command(ScrapyCommand):
    """Starts or stops the embedded Redis, or says where it is."""

    requires_project = True
    requires_crawler_process = False
    default_settings = QUIET

    def syntax(self) -> str:
        """Return the arguments."""
        return "start|stop|socket"

    def short_desc(self) -> str:
        """Return what it does, in a line."""
        return "Start or stop the embedded Redis of this folder, or print its socket"

    def long_desc(self) -> str:
        """Return what it does."""
        return (
            "start and stop the Redis under .crawl/ that is used when REDIS_URL is not set; socket prints the "
            'path for redis-cli. Example: redis-cli -s "$(scrapy redis socket)" lpush images:start_urls URL'
        )

    @reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Do it."""
        assert self.settings is not None
        if args != ["stop"] and config.load(self.settings).redis_url is not None:
            raise ConfigError(
                "REDIS_URL is set, so the Redis under .crawl/ is not in use: unset it, or use that one"
            )
        match args:
            case ["start"]:
                print(embedded.ensure(crawl_dir()))
            case ["stop"]:
                print("stopped" if embedded.stop(crawl_dir()) else "was not running")
            case ["socket"]:
                embedded.ensure(crawl_dir())
                print(embedded.socket_path(crawl_dir()))
            case _:
                raise UsageError("start, stop or socket?")
