"""`scrapy feed`: puts seeds into the list, from files or from what plug-ins offer."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors
from scrapy.exceptions import UsageError

from crawlproject import cli, config, plugins
from crawlproject.frontier import seed_list
from crawlproject.ingest.feeds import FileFeed
from crawlproject.ingest.seed_files import is_stream
from crawlproject.ingest.seed_rows import Columns, Reading
from crawlproject.ingest.seed_stream import SeedList, SeedStream
from crawlproject.program import as_called
from crawlproject.texts import counted, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_RETRY_S = 1.0

# Errors for which Redis takes no seeds for a while: those of a stream wait there.
_PASSING = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.OutOfMemoryError,
    redis_errors.ReadOnlyError,
)


class Command(cli.Command):
    """Put seeds into the crawl from Parquet files, from TSV or CSV files with a header (url; where known,
    identifier or uuid, source, priority, again), JSON lines or plain lists of URLs, gzipped or not. A FILE may be
    a folder, a pattern, or in s3:// or gs://; - is stdin. With the plug-in probes, --probe fetches only the
    beginning of each image, enough for its size and to see that it exists; --again checks the images of a dataset
    for changes. With the plug-in kafka, --kafka feeds the seeds of a topic as they arrive, until Ctrl-C.
    """

    arguments = "[options] FILE..."
    examples = (
        "scrapy feed museum.tsv flickr.jsonl.gz",
        "scrapy feed 's3://bucket/*.parquet' --columns url=URL,uuid=key --keep TEXT,LICENSE",
    )
    json_help = "print the counts as one JSON document"
    spider_help = "the spider to feed"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--columns",
            metavar="KEY=COLUMN,...",
            help="columns of the files for the keys of a seed, as in url=URL",
        )
        parser.add_argument(
            "--keep",
            metavar="COLUMN,...",
            help="columns to copy into events and dead letters, also under another name, as in license=LICENSE",
        )
        parser.add_argument(
            "--resume",
            action="store_true",
            help="continue an interrupted feed of the same FILEs and options, after its last seed",
        )
        offered: dict[str, type[cli.HasOptions]] = {**_streams(), **_readings()}
        cli.add_plugin_options(parser, offered, offered)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        spider = cli.check_spider(self, opts.spider)
        streams, readings = _streams(), _readings()
        chosen = [name for name in (*streams, *readings) if getattr(opts, name)]
        if bool(args) + sum(name in streams for name in chosen) != 1:
            named = [f"--{name}" for name in streams]
            raise UsageError(f"expected {' or '.join(['at least one FILE (- for stdin)', *named])}")
        cli.check_plugin_options(chosen, opts, {**streams, **readings})
        if not args:
            of_files = ["columns", "keep", "resume", *readings]
            if any(getattr(opts, name) for name in of_files):
                raise UsageError(f"--{', --'.join(of_files[:-1])} and --{of_files[-1]} need FILEs")
            self._feed_stream(streams[chosen[0]], opts)
            return
        if len(chosen) > 1:
            raise UsageError(f"--{' and --'.join(chosen)} exclude each other")
        if opts.resume and any(map(is_stream, args)):
            raise UsageError("--resume needs FILEs: stdin and pipes begin where they begin")
        try:
            reading = readings[chosen[0]](args, opts) if chosen else Reading()
            columns = Columns.of_options(opts.columns, opts.keep, reading)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._feed_files(args, opts, columns, getattr(spider, "bare_scheme", "http"))

    def _feed_files(self, names: list[str], opts: argparse.Namespace, columns: Columns, scheme: str) -> None:
        """Feed one file after the other; a file that cannot be read ends it, with the counts so far printed."""
        from rich.progress import DownloadColumn, TransferSpeedColumn  # here: rich would slow every command

        assert self.settings is not None
        progress = _progress(DownloadColumn(), TransferSpeedColumn())

        def say(text: str) -> None:
            progress.print(visible(as_called(text)), soft_wrap=True)

        with cli.connected(config.load(self.settings), opts.spider) as (state, run):
            feed = FileFeed(state, run, names, columns, say, scheme)
            where = feed.begin(self.settings, resume=opts.resume)
            if opts.resume:
                cli.remark(where)
            bar = progress.add_task("feeding", total=feed.size or None)
            try:
                if ignored := feed.ignored():
                    cli.remark(
                        f"{ignored}; --keep copies them into events, --columns maps them to keys of the seed"
                    )
                with progress:
                    feed.push(lambda n: progress.advance(bar, n))
            finally:
                _print_counts(feed.fed, feed.rejected, opts)
        if feed.rejected and not feed.fed:
            self.exitcode = 1

    def _feed_stream(self, kind: type[SeedStream], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        with cli.connected(config.load(self.settings), opts.spider) as (state, run):
            fed, fault = 0, ""
            progress = _progress("{task.completed:.0f} seeds", "{task.fields[note]}")
            bar = progress.add_task("feeding", total=None, note="")

            def say(text: str) -> None:
                progress.print(visible(as_called(f"scrapy feed: {text}")), soft_wrap=True)

            seeds = SeedList(
                lambda seeds: run(seed_list.push(state, seeds)),
                lambda: run(seed_list.has_room(state)),
                say,
            )
            stream = kind(seeds, opts, self.settings)
            try:
                with progress, cli.stoppable() as stop, stream.opened():
                    while not stop.is_set():
                        try:
                            count = stream.feed()
                        except _PASSING as error:
                            if str(error) != fault:
                                say(f"{error}; trying again")
                            fault = str(error)
                            stop.wait(_RETRY_S)
                            continue
                        fault = ""
                        fed += count
                        if not progress.disable:
                            note = "no room" if stream.full else f"{stream.lag() or 0} waiting"
                            progress.update(bar, advance=count, note=note)
            finally:
                _print_counts(fed, stream.rejected, opts)


def _print_counts(fed: int, rejected: int, opts: argparse.Namespace) -> None:
    counts = {"fed": fed, "rejected": rejected}
    print(json.dumps(counts) if opts.json else f"{counted(fed, 'seed')} fed, {rejected} rejected")


@functools.cache
def _streams() -> Mapping[str, type[SeedStream]]:
    return plugins.loaded("feeders", cli.remark)


@functools.cache
def _readings() -> Mapping[str, type[Reading]]:
    return plugins.loaded("readings", cli.remark)


def _progress(*columns: str | ProgressColumn) -> Progress:
    """Return a progress bar for stderr, with `columns` behind it; without a terminal it only prints lines."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return Progress(
        "{task.description}",
        BarColumn(),
        TaskProgressColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        redirect_stdout=False,
        disable=not console.is_interactive,
    )
