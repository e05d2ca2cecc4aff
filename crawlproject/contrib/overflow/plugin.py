"""A store for what waits beyond the windows of sources, so that it needs no room in Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.config.parsers import optional, storage
from crawlproject.plugins import Plugin


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowSettings:
    """Where the store is."""

    PREFIX: ClassVar[str] = "CRAWL_OVERFLOW_"

    store: str | None = config.setting(
        None,
        optional(storage),
        "where most requests beyond the windows of sources wait, the same for all workers: a folder or "
        "`s3://bucket/prefix/`; none: in Redis. While it is down, leasing pauses when a fifth of "
        "`CRAWL_OVERFLOW_MAXLEN` wait in Redis",
    )


def check_store(settings: BaseSettings) -> None:
    """Make sure that the store can be opened, before anything starts.

    Raises:
        ConfigError: it cannot.

    """
    if (store := config.read(OverflowSettings, settings).store) is not None:
        from crawlproject.storage.blobs import open_storage, refusing  # here: it would slow every command

        with refusing("CRAWL_OVERFLOW_STORE", store):
            open_storage(store, settings, is_synced=True)


PLUGIN = Plugin(
    settings=OverflowSettings,
    checks={"overflow": "crawlproject.contrib.overflow.plugin.check_store"},
    scrapy={"EXTENSIONS_BASE": {"crawlproject.contrib.overflow.spilling.OverflowStore": 320}},
)
