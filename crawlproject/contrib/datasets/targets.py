"""`scrapy events FOLDER:parquet`, `FOLDER:pages` and `FOLDER:webdataset`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawlproject.contrib.datasets.parts import Parts, parts_of
from crawlproject.errors import ConfigError, CrawlprojectError, StorageDown
from crawlproject.sinks.sink import Target
from crawlproject.state.client import State
from crawlproject.storage.blobs import Folder, described, folder_of, refusing
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import counted, missing, printable

if TYPE_CHECKING:
    from crawlproject.contrib.datasets.dataset import Dataset
    from crawlproject.contrib.datasets.parquet import ParquetForm
    from crawlproject.contrib.datasets.webdataset import WebDatasetForm

ROWS, SAMPLES, EVERY_S = 50_000, 10_000, 600.0  # of a part
_MOST = {"rows": 10_000_000, "samples": 100_000, "every": 86_400}  # a sample's number has five digits


class ParquetTarget(Target):
    """Parquet files, with a row for each image."""

    more: ClassVar[tuple[str, ...]] = ()  # columns beside those of all datasets
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rows": {
            "type": int,
            "metavar": "N",
            "help": f"of a dataset: rows of a part at most (default: {ROWS:,})",
        },
        "every": {
            "type": float,
            "metavar": "S",
            "help": f"of a dataset: seconds after which a part appears that is not full (default: {EVERY_S:.0f})",
        },
        "keep": {
            "metavar": "NAME[:TYPE],...",
            "help": "of a dataset: keys of extra that become columns, as string, int64, double or bool",
        },
    }

    def __init__(self, state: State, where: str, opts: argparse.Namespace, settings: BaseSettings) -> None:
        super().__init__(state, where, opts, settings)
        for name, most in _MOST.items():
            value = getattr(opts, name)
            if value is not None and not 0 < value <= most:
                raise UsageError(f"--{name} {value}: expected more than 0, and {most:,} at most")
        maxlen = state.bounds.stream_maxlen
        self.rows: int = opts.rows or max(min(ROWS, maxlen // 2), 1)
        if self.rows > max(maxlen // 2, 1):
            each = "" if state.count == 1 else f" for each of {state.count} shards"
            raise UsageError(
                f"a part of {self.rows:,} rows is more than half of CRAWL_STREAM_MAXLEN, {maxlen:,}{each}, "
                "at which the crawl would wait for it: lower --rows, or raise that setting"
            )
        self.about_it: dict[str, str | None] = {}  # what else is noted, to be the same when it is continued
        try:
            self.kept = self.kept_columns(opts.keep or "")
        except ValueError as error:
            raise UsageError(f"--keep {error}") from None

    @classmethod
    def kept_columns(cls, text: str) -> dict[str, Any]:
        """Return the columns in a value of --keep, with their types.

        Raises:
            ValueError: it cannot be read, or a dataset has such a column by itself; the message says why.
            CrawlprojectError: pyarrow is not installed.

        """
        try:
            from crawlproject.contrib.datasets import event_rows
        except ImportError as error:
            raise CrawlprojectError(missing("a dataset", "pyarrow", error, "parquet")) from None
        return event_rows.kept_columns(text, cls.more)

    def sink(self, shard: State, stopping: Callable[[], bool]) -> Dataset:
        """Return what writes the events of a shard, into a folder of its own, as out/shard=02, of several."""
        from crawlproject.contrib.datasets.dataset import Dataset

        folder = self.where if shard.count == 1 else f"{self.where.rstrip('/')}/shard={shard.number:02d}"
        parts = parts_of(folder, self.settings)
        form, about = self.form(shard, parts)
        about = (
            self.about_it
            | about
            | {"keep": ",".join(f"{name}:{kind}" for name, kind in self.kept.items()) or None}
        )
        every = self.opts.every or EVERY_S
        return Dataset(shard, parts, form, every=every, name=self.opts.reader, about=about, stopping=stopping)

    def form(self, shard: State, parts: Parts) -> tuple[ParquetForm, dict[str, Any]]:
        """Return the form of the parts, and what is noted of the dataset."""
        from crawlproject.contrib.datasets.parquet import ParquetForm

        return ParquetForm(parts, self.rows, self.kept), {}


class PagesTarget(ParquetTarget):
    """Parquet files, with a row for each event of the spider `pages`."""

    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: ParquetTarget.options[name] for name in ("rows", "every")
    }

    def form(self, shard: State, parts: Parts) -> tuple[ParquetForm, dict[str, Any]]:
        """Return the form of the parts, and what is noted of the dataset."""
        from crawlproject.contrib.datasets.parquet import PagesForm

        return PagesForm(parts, self.rows), {}


class WebDatasetTarget(ParquetTarget):
    """Tar files of thumbnails, or originals, with a Parquet file beside each."""

    more: ClassVar[tuple[str, ...]] = ("key", "caption")
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **ParquetTarget.options,
        "samples": {
            "type": int,
            "metavar": "N",
            "help": f"of a WebDataset: samples of a shard (default: {SAMPLES:,})",
        },
        "caption": {
            "metavar": "FIELD",
            "help": "of a WebDataset: the key of the event, or of its extra, that is the caption, as in title",
        },
        "originals": {
            "action": "store_true",
            "help": "of a WebDataset: samples have the images themselves, as CRAWL_KEEP_ORIGINALS kept them",
        },
    }

    def __init__(self, state: State, where: str, opts: argparse.Namespace, settings: BaseSettings) -> None:
        super().__init__(state, where, opts, settings)
        self._forms: list[WebDatasetForm] = []
        self._column: Literal["thumbnail", "original"] = "original" if opts.originals else "thumbnail"
        self._setting = "CRAWL_KEEP_ORIGINALS" if opts.originals else "IMAGES_STORE"
        store = state.config.keep_originals if opts.originals else state.config.images_store
        if store is None:
            raise UsageError(f"--originals needs the setting {self._setting}: where the crawl has kept them")
        self._store = store

    def form(self, shard: State, parts: Parts) -> tuple[ParquetForm, dict[str, Any]]:
        """Return the form of the parts, and what is noted of the dataset."""
        from crawlproject.contrib.datasets.webdataset import WebDatasetForm

        prefix = "" if shard.count == 1 else f"{shard.number:02d}"
        look_up = lookup_of(self._store, self.settings, self._setting)
        samples = self.opts.samples or SAMPLES
        caption, column = self.opts.caption, self._column
        form = WebDatasetForm(parts, look_up, self.rows, samples, caption, column, prefix, self.kept)
        self._forms.append(form)
        return form, {"caption": self.opts.caption, "pictures": f"{self._column}s"}

    def remarks(self) -> list[str]:
        """Say how many pictures are missing, and whether captions are."""
        said = []
        if missing := sum(one.missing for one in self._forms):
            said.append(f"{counted(missing, self._column)} missing in {self._setting}: rows without a sample")
        if any(one.lacks_captions for one in self._forms):
            said.append(
                f"no image has a caption: {printable(self.opts.caption)} is no key of its event or `extra`"
            )
        return said


def lookup_of(uri: str, settings: Any, setting: str = "IMAGES_STORE") -> Callable[[str], bytes | None]:
    """Return a function that reads a picture by its name: None where there is none of that name.

    `setting` is what names the storage. The function blocks, may be called from several threads, and raises

        StorageDown: the storage fails at present.
        CrawlprojectError: it refuses, until an operator acts.
    """
    with refusing(setting, uri):  # as boto may refuse its settings
        store = S3Storage(uri, settings) if uri.startswith("s3://") else Folder(folder_of(uri))

    def look_up(name: str) -> bytes | None:
        try:
            return store.read(name)
        except Exception as error:  # whatever boto and the file system find wrong
            is_missing = isinstance(error, FileNotFoundError)
            if is_missing and (not isinstance(store, Folder) or store.folder.is_dir()):
                return None
            what = f"{setting}={printable(uri, 500)}: {name} cannot be read ({described(error)}): "
            if store.is_permanent(error) and not is_missing:
                raise ConfigError(what + "allow that, or remove it to go on without it") from None
            raise StorageDown(what + "bring it back, or remove it to go on without it") from None

    return look_up
