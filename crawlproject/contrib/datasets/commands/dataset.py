"""`scrapy dataset`: from a list of URLs to a dataset, in one line."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.misc import load_object

from crawlproject import cli, config, plugins
from crawlproject.controls import set_rate
from crawlproject.errors import CrawlprojectError
from crawlproject.ingest import files, seed_files
from crawlproject.sources.rates import rate_of
from crawlproject.state.client import crawl_dir
from crawlproject.texts import counted, printable, scrapy_command

if TYPE_CHECKING:
    from crawlproject.contrib.datasets.columns import Mapped
    from crawlproject.contrib.datasets.targets import ParquetTarget

_FORMS = ("webdataset", "parquet")
_STORE = "IMAGES_STORE"
_SPIDER = "images"


class Command(cli.Command):
    """Crawl the images of lists (Parquet, CSV, TSV, JSON lines or plain lists of URLs, as for scrapy feed), with a
    worker for each core, and write them to a folder or s3://BUCKET/PREFIX: as WebDataset's shards, or as Parquet
    files with the images in images/. The command shows its progress, and a summary at the end. After Ctrl-C or a
    crash, run it again: it continues, and each valid row of the lists is in the dataset once. A site of unknown
    size gets a request every five seconds; to raise this rate, use --rate, or give the size in a catalogue.
    """

    arguments = "[options] FILE... --to FOLDER"
    summary = "Make a dataset from a list of URLs, as WebDataset or Parquet"
    examples = (
        "scrapy dataset images.parquet --to out/ --size 256 --crop --columns caption=TEXT,id=key",
        "scrapy dataset urls.txt --to s3://bucket/out/ --format parquet",
    )
    json_help = "print the summary as one JSON document"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        whole: dict[str, Any] = {"type": int, "metavar": "N"}
        parser.add_argument("--to", metavar="FOLDER", help="folder or s3://BUCKET/PREFIX of the dataset")
        parser.add_argument("--format", choices=_FORMS, default=_FORMS[0], help=f"(default: {_FORMS[0]})")
        parser.add_argument("--size", **whole, help="pixels of the longest side of an image (default: 640)")
        parser.add_argument("--crop", action="store_true", help="cut a square from the middle of each image")
        parser.add_argument("--enlarge", action="store_true", help="enlarge smaller images to the size")
        parser.add_argument(
            "--columns",
            metavar="NAME=COLUMN,...",
            help="columns of the lists to copy into the dataset, such as caption=TEXT,id=key,LICENSE; url, "
            "source and priority become the keys of the seed, and id is a part of the identifier",
        )
        parser.add_argument("--caption", metavar="COLUMN", help="the same as --columns caption=COLUMN")
        parser.add_argument("--url", metavar="COLUMN", help="the column of URLs; by default url or image_url")
        parser.add_argument(
            "--catalogue", metavar="FILE", help="catalogue of sites with their sizes, which set the rates"
        )
        parser.add_argument(
            "--rate",
            metavar="SOURCE=RPS,...",
            action="append",
            help="rate of a source in requests a second, such as 127.0.0.1=5, if it is yours or its owner agrees; "
            "it stays until scrapy rate changes it",
        )
        parser.add_argument("--workers", **whole, help="number of workers (default: one for each core)")
        parser.add_argument("--rows", **whole, help="rows of a part at most (default: 50,000)")
        parser.add_argument("--samples", **whole, help="samples of a shard at most (default: 10,000)")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproject.sources.catalogue_reader import check_catalogue  # here: it would slow every command

        settings = self.settings
        assert settings is not None
        if not args or not opts.to:
            raise UsageError("expected at least one FILE, and --to FOLDER")
        if once := next(filter(seed_files.is_stream, args), None):
            raise UsageError(f"{once}: a list is read again when a dataset is continued: name a file")
        if _SPIDER not in get_spider_loader(settings).list():
            raise CrawlprojectError(
                f"this project has no spider {_SPIDER}: add crawlproject.spiders to its SPIDER_MODULES, or use "
                "another folder"
            )
        if opts.workers is not None and not 0 < opts.workers <= 256:
            raise UsageError(f"--workers {opts.workers}: expected 1 to 256")
        rates = _rates(opts.rate or [])
        form = load_object(plugins.offered("readers")[opts.format])
        mapped = _mapped(args, settings, opts, form)
        namespace, has_parts = _namespace(opts.to, settings)
        given = _given(settings, opts, namespace)
        for name, value in given.items():
            settings.set(name, value, priority="cmdline")
        own = config.load(settings)
        config.check_contact(own)
        if own.shards > 1:
            raise CrawlprojectError(
                "CRAWL_SHARDS is for several machines: leave it out, or run scrapy feed, crawl and events"
            )
        if own.sources is not None:
            check_catalogue(own.sources)
        logs = crawl_dir() / "logs" / own.namespace
        with _alone(own.namespace, opts.to):
            said = self._make(args, opts, form, given, mapped, rates, logs, has_parts)
        if said["whole"] and _thumbnails(own.namespace) == Path(given.get(_STORE, ".")):
            shutil.rmtree(_thumbnails(own.namespace), ignore_errors=True)  # they are in the shards
        if opts.json:
            print(json.dumps(said))
        else:
            from crawlproject.contrib.datasets.making import about_crawl

            cli.show(about_crawl("\n".join(summary_of(said, opts.to, logs)), own.namespace))
        if not said["whole"]:
            self.exitcode = 130

    def _make(
        self,
        names: list[str],
        opts: argparse.Namespace,
        form: type[ParquetTarget],
        given: dict[str, str],
        mapped: Mapped,
        rates: dict[str, str],
        logs: Path,
        has_parts: bool,
    ) -> dict[str, Any]:
        from crawlproject.contrib.datasets.making import CrawlScreen, Feeding, Making
        from crawlproject.contrib.datasets.workers import Workers

        assert self.settings is not None
        own = config.load(self.settings)
        screen = CrawlScreen(own.namespace)
        if mapped.ignored:
            screen.say(
                f"ignored: {printable(', '.join(mapped.ignored), 500)}; --columns copies them into the dataset"
            )
        read = argparse.Namespace(
            follow=True, skip_lost=False, reader=None, every=None, originals=False, json=True,
            rows=opts.rows, samples=opts.samples, keep=mapped.keep,
            caption="caption" if mapped.has_caption else None,
        )  # fmt: skip
        options = [word for pair in (*opts.set, *(f"{k}={v}" for k, v in given.items())) for word in ("-s", pair)]
        count = opts.workers or len(os.sched_getaffinity(0))
        about = {
            "images": f"{','.join(map(str, own.thumbnail_sizes))} {own.thumbnail_mode}"
            f"{' enlarged' if own.thumbnail_enlarge else ''}",
            "columns": ",".join(f"{name}={column}" for name, column in mapped.pairs.items()) or None,
        }
        making = Making(self.settings, form, opts.to, read, screen, about)
        feeding = Feeding(self.settings, names, mapped.columns, screen.say)

        async def run() -> dict[str, Any]:
            async with cli.opened_state(self) as state:
                for source, rps in rates.items():
                    await set_rate(state, source, rps, cli.operator(self))
                workers = Workers(count, options, logs, screen.say)
                said = await making.run(state, feeding, workers, has_parts=has_parts)
                redis: Any = state.redis
                for source in rates:
                    if not await redis.hexists(state.keys.rates, source):
                        said["remarks"].append(f"--rate {source}: no image is of a source of that name")
                return said

        try:
            return asyncio.run(run())
        finally:
            screen.close()


def _given(settings: BaseSettings, opts: argparse.Namespace, namespace: str) -> dict[str, str]:
    """Return the settings that the options stand for, and where thumbnails go, unless users have said that."""
    given: dict[str, str] = {}
    if opts.size is not None:
        given["CRAWL_THUMBNAIL_SIZES"] = str(opts.size)
    if opts.crop:
        given["CRAWL_THUMBNAIL_MODE"] = "center_crop"
    if opts.enlarge:
        given["CRAWL_THUMBNAIL_ENLARGE"] = "True"
    if opts.catalogue is not None:
        given["CRAWL_SOURCES"] = opts.catalogue
    given["CRAWL_NAMESPACE"] = namespace
    if settings.get(_STORE) == ".crawl/thumbnails":
        beside = f"{opts.to.rstrip('/')}/images/"
        given[_STORE] = beside if opts.format == "parquet" else str(_thumbnails(namespace))
    return given


def _rates(given: list[str]) -> dict[str, str]:
    """Return the rates of sources in values of --rate, as a user has written them."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, ",".join(given).split(","))):
        source, _, rps = part.rpartition("=")
        if not source or not rate_of(rps.encode(errors="replace")):
            raise UsageError(
                f"--rate {part!r:.80}: expected SOURCE=RPS, from 0.000001 to 100000, as in 127.0.0.1=5"
            )
        found[cli.source_names([source])[0]] = rps
    return found


def _namespace(where: str, settings: BaseSettings) -> tuple[str, bool]:
    """Return the namespace of a dataset's crawl, which is noted in the dataset, and whether that has parts.

    Each has a crawl of its own: seeds that another one has seen would be dropped, and its events would be rows. A
    new one has a new namespace: its folder may be that of one that was deleted.
    """
    from crawlproject.contrib.datasets.dataset import namespace_of
    from crawlproject.contrib.datasets.parts import parts_of

    is_there = "://" in where or Path(where).is_dir()
    noted, has_parts = namespace_of(parts_of(where, settings)) if is_there else (None, False)
    if own := settings.get("CRAWL_NAMESPACE"):
        return own, has_parts
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", where.rstrip("/").rpartition("/")[2])[:32]
    return noted or f"dataset-{name}-{secrets.token_hex(3)}", has_parts


def _thumbnails(namespace: str) -> Path:
    return crawl_dir() / "datasets" / namespace / "thumbnails"


def _mapped(
    names: list[str], settings: BaseSettings, opts: argparse.Namespace, form: type[ParquetTarget]
) -> Mapped:
    """Return what the columns of the lists, those of the first one, are for."""
    from crawlproject.contrib.datasets.columns import mapped

    pairs = [opts.columns, opts.caption and f"caption={opts.caption}", opts.url and f"url={opts.url}"]
    first = seed_files.find(names[:1], settings)[0]
    try:
        return mapped(first.name, files.columns_of(first), ",".join(filter(None, pairs)), form)
    except ValueError as error:
        raise UsageError(str(error)) from None


@contextmanager
def _alone(namespace: str, where: str) -> Iterator[None]:
    """Keep other datasets of this project waiting: each would send sites the whole rate."""
    folder = crawl_dir() / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise CrawlprojectError(
                f"another dataset is being made here, {printable(lock.read(), 500)}: wait until it ends, because "
                "two at once would send sites twice their rates"
            ) from None
        lock.truncate(0)
        lock.write(where)
        lock.flush()
        yield


def summary_of(said: dict[str, Any], where: str, logs: Path) -> Iterator[str]:
    """Yield the lines of the summary."""
    total = said["ok"] + said["gone"] + said["failed"]
    again = said["tried_again"]  # a row each time
    rows = f"{counted(total + again, 'row')}, of {counted(total, 'image')}" if again else counted(total, "row")
    more = [f"{said[name]} {name}" for name in ("duplicates", "excluded", "rejected") if said[name]]
    yield (
        f"{where}: {rows}, {said['ok']} ok, {said['gone']} gone, {said['failed']} failed"
        f"{'; left out: ' + ', '.join(more) if more else ''} ({said['seconds']:.0f} s)"
    )
    if not said["whole"]:
        yield f"stopped, with {said['waiting']} to do: the same command continues"
    if said["slowest"]:
        yield "slowest sources:"
        yield from (f"  {line}" for line in said["slowest"])
    if said["failed"]:
        yield "failed, see scrapy dead list:"
        yield from (f"  {count} {reason}" for reason, count in said["reasons"].items())
        retry = scrapy_command("dead", "retry", "--reason", next(iter(said["reasons"]), ""))
        yield f"to try the first of these again, run the following, and then the same command: {retry}"
    yield from (f"note: {remark}" for remark in said["remarks"])
    yield f"logs: {logs}"
