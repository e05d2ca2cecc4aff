"""`scrapy crawl`, with our settings, catalogue, Redis and storage checked before anything starts."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec

from scrapy.commands import crawl
from scrapy.spiderloader import get_spider_loader

from crawlproject import cli, config, plugins
from crawlproject.config import Config
from crawlproject.errors import ConfigError
from crawlproject.screen import Screen
from crawlproject.state.client import check_redis
from crawlproject.state.clock import local_time
from crawlproject.storage.blobs import check_storage, is_same_place

logger = logging.getLogger(__name__)


def _refuse(fault: str) -> None:
    raise ConfigError(fault)


class Command(crawl.Command):
    """Runs a spider; reports in one sentence what would make it fail."""

    _screen: Screen | None = None

    def long_desc(self) -> str:
        return (
            "Run a worker, one of any number: crawl the requests in the frontier, until Ctrl-C or "
            "SIGTERM. "
            "Example: CRAWL_CONTACT=mailto:you@example.org scrapy crawl images -s CRAWL_SOURCES=sources.json"
        )

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        self._screen = cli.log_as_set(self, args[0] if len(args) == 1 else "")  # from the first line on
        self._check(args)
        if self.exitcode:
            sys.exit(self.exitcode)  # before Scrapy logs its versions

    @cli.reports_errors
    def _check(self, args: list[str]) -> None:
        """Report what would make the crawl fail, and fit the settings to this machine."""
        # Here: Scrapy imports all commands, whichever is run, and what a worker needs takes its time.
        from crawlproject.exclusions import read_exclusions
        from crawlproject.net.connections import fit_open_files
        from crawlproject.sources.catalogue_reader import check_catalogue

        assert self.settings is not None
        settings = config.load(self.settings)
        config.check_guarded(self.settings)
        config.check_contact(settings)
        if (now := local_time()) < 0:
            raise ConfigError(
                f"the monotonic clock of this machine is at {now:.0f} s, below zero: run the worker outside "
                "a time namespace (unshare --monotonic)"
            )
        if missing := dict(_not_installed(settings.formats)):
            raise ConfigError(
                f"CRAWL_FORMATS names {' and '.join(missing)}, whose libraries are not installed: "
                f"pip install {' '.join(missing.values())}, or leave out what needs them"
            )
        if settings.sources is not None:
            check_catalogue(settings.sources)
        if settings.exclude is not None:
            read_exclusions(settings.exclude)
        if not settings.shard and settings.shards > 1:
            self.settings["EXTENSIONS_BASE"]["crawlproject.extensions.membership.UnservedShards"] = 400
        wanted = self.settings.getint("CONCURRENT_REQUESTS")
        if (concurrent := fit_open_files(wanted)) < wanted:
            logger.warning(
                "The limit of open files (ulimit -Hn) allows %d requests in flight, CONCURRENT_REQUESTS is %d: "
                "raise that limit (LimitNOFILE of systemd, --ulimit nofile of a container), or lower the setting",
                concurrent,
                wanted,
            )
            self.settings.set("CONCURRENT_REQUESTS", concurrent, priority="cmdline")
        if settings.analyses:
            from crawlproject.pipelines.thumbnail import check_analyses

            check_analyses(settings)
        asyncio.run(check_redis(settings))
        self._check_storages(settings)
        for check in plugins.loaded("checks", _refuse).values():
            check(self.settings)
        spiders = get_spider_loader(self.settings).list()
        if args and args[0] not in spiders:
            raise ConfigError(f"unknown spider {args[0]!r}: expected one of {', '.join(spiders)}")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        assert self.crawler_process is not None
        settings = config.load(self.settings)
        if self._screen is not None:
            self._show_progress(self._screen)
        if settings.shard and len(args) == 1:
            self._divide(args[0], settings.shard, opts)
        super().run(args, opts)
        from crawlproject.frontier.scheduler import MOVES_TO  # here: it would slow every command

        if MOVES_TO in os.environ and signal.getsignal(signal.SIGTERM) == self.crawler_process._signal_shutdown:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # nobody has told it to stop

    def _show_progress(self, screen: Screen) -> None:
        from crawlproject.extensions.progress_line import ProgressLine

        assert self.settings is not None
        ProgressLine.screen = screen
        self.settings["EXTENSIONS_BASE"]["crawlproject.extensions.progress_line.ProgressLine"] = 400
        screen.say(f"log: {self.settings['LOG_FILE']}; Ctrl-C ends this worker")

    def _divide(self, spider: str, shards: tuple[int, ...], opts: argparse.Namespace) -> None:
        """Schedule a crawler for each shard but the last one, in this process; `run` schedules that."""
        assert self.settings is not None
        assert self.crawler_process is not None
        concurrent = max(self.settings.getint("CONCURRENT_REQUESTS") // len(shards), 1)
        self.settings.set("CONCURRENT_REQUESTS", concurrent, priority="cmdline")
        for number in shards:
            self.settings.set("CRAWL_SHARD", str(number), priority="cmdline")
            if number != shards[-1]:
                self.crawler_process.crawl(self._create_crawler(spider), **opts.spargs)

    def _check_storages(self, settings: Config) -> None:
        """Try to write where what is crawled is stored. Raises ConfigError."""
        if (originals := settings.keep_originals) and is_same_place(originals, settings.images_store):
            raise ConfigError("CRAWL_KEEP_ORIGINALS is the same place as IMAGES_STORE: name another one")
        check_storage(settings.images_store, self.settings)
        if originals:
            check_storage(originals, self.settings, "CRAWL_KEEP_ORIGINALS")


def _not_installed(formats: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield which formats are without the library that they need, and its package."""
    for name, path in plugins.offered("formats").items():
        with suppress(Exception):  # as in plugins.file_types
            one = plugins.format_at(path)
            if name in formats and one.module and find_spec(one.module) is None:
                yield name, one.package
