"""`scrapy monitor`: leads and reports, without crawling."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.log import configure_logging
from scrapy.utils.reactor import install_reactor

from crawlproject import cli, config, plugins
from crawlproject.errors import CrawlprojectError
from crawlproject.state.client import State, check_redis
from crawlproject.status.reporter import Reporter, present_spiders
from crawlproject.status.service import Service

logger = logging.getLogger(__name__)


class Command(cli.Command):
    """Report without crawling. It stands for election as workers do; while it leads, it sets rates and writes a
    monitoring_update for each spider every 5 s, to the log. Plug-ins serve /metrics at CRAWL_METRICS_ADDRESS
    (127.0.0.1), CRAWL_METRICS_PORT (9410), and the dashboard at CRAWL_DASHBOARD_ADDRESS (127.0.0.1),
    CRAWL_DASHBOARD_PORT (9411), until Ctrl-C or SIGTERM.
    """

    default_settings: ClassVar[dict[str, Any]] = {}  # it logs
    examples = ("scrapy monitor --logfile monitor.log",)
    json_help = "once it serves them, print the URLs of /metrics and the dashboard as one JSON document"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--spider",
            action="append",
            metavar="NAME",
            help="a spider to report on, and no others; may be repeated (default: all that the crawl has)",
        )

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        cli.log_as_set(self)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args:
            raise UsageError(f"expected no arguments; did you mean --spider {args[0]}?")
        # Here: Scrapy imports all commands, whichever is run, and what a worker or a server needs takes its time.
        from crawlproject.exclusions import read_exclusions
        from crawlproject.sources.catalogue_reader import check_catalogue

        assert self.settings is not None
        settings = config.load(self.settings)
        if settings.sources is not None:
            check_catalogue(settings.sources)
        if settings.exclude is not None:
            read_exclusions(settings.exclude)
        services: dict[str, Service] = {
            name: kind(settings, self.settings) for name, kind in plugins.loaded("services", cli.remark).items()
        }
        asyncio.run(check_redis(settings))
        configure_logging(self.settings)
        install_reactor(self.settings["TWISTED_REACTOR"], self.settings["ASYNCIO_EVENT_LOOP"])
        from twisted.internet import reactor as installed

        reactor: Any = installed
        project = get_spider_loader(self.settings).list()
        parts = AsyncExitStack()

        async def start() -> None:
            served = await _start(settings, opts.spider, project, services, parts)
            if opts.json:
                print(json.dumps(served), flush=True)

        def started() -> None:
            deferred_from_coro(start()).addErrback(failed)

        def failed(failure: Any) -> None:
            logger.error("%s", failure.value if failure.check(CrawlprojectError) else failure.getTraceback())
            self.exitcode = 1
            reactor.stop()

        reactor.callWhenRunning(started)
        reactor.addSystemEventTrigger("before", "shutdown", lambda: deferred_from_coro(parts.aclose()))
        reactor.run()


async def _start(
    settings: config.Config,
    spiders: Sequence[str] | None,
    project: Sequence[str],
    services: Mapping[str, Service],
    parts: AsyncExitStack,
) -> dict[str, str | None]:
    """Connect, stand for the lead, read, and serve; return the URLs of that. `parts` stops all, the last first.

    Raises:
        RedisUnavailable, ConfigError: see there.

    """
    from crawlproject.leader import Leader

    first = state = State(settings.of_any_shard, spiders[0] if spiders else "images")
    await state.open()
    parts.push_async_callback(state.close)
    if spiders is None and (present := await present_spiders(first, project)):
        first = first.beside(present[0])
    reporter = Reporter(first, project, always=True, only=spiders)
    await reporter.find()
    leaders = [Leader(settings, shard) for shard in first.shards]

    async def resign() -> None:
        await asyncio.gather(*(leader.stop() for leader in leaders))

    for leader in leaders:
        leader.start()
    parts.push_async_callback(resign)
    reporter.start()
    parts.push_async_callback(reporter.stop)
    served: dict[str, str | None] = {}
    for name, service in services.items():
        served[name] = service.start(reporter)
        parts.push_async_callback(service.stop)
        if served[name]:
            logger.info("%s at %s", name.capitalize(), served[name])
    return served
