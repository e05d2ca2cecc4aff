"""The content store: pages as they came, in WARC files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.config.parsers import folder, storage
from crawlproject.plugins import Plugin


@dataclass(frozen=True, kw_only=True, slots=True)
class WarcSettings:
    """Where pages are kept."""

    PREFIX: ClassVar[str] = "CRAWL_PAGES_"

    store: str | None = config.setting(
        None,
        storage,
        "where pages go, as WARC files: a folder or `s3://bucket/prefix/`; none: they are not kept",
    )
    spool: str = config.setting(
        ".crawl/spool",
        folder,
        "where WARC files for S3 are written until they are uploaded; on a disk that outlives the worker",
    )


def check_store(settings: BaseSettings) -> None:
    """Try to write to the store, if there is one.

    Raises:
        ConfigError: it cannot be written now.

    """
    if config.read(WarcSettings, settings).store is not None:
        from crawlproject.contrib.warc.store import check_page_store  # here: warcio would slow every command

        check_page_store(settings)


PLUGIN = Plugin(
    settings=WarcSettings,
    checks={"pages_store": "crawlproject.contrib.warc.plugin.check_store"},
    scrapy={"ITEM_PIPELINES": {"crawlproject.contrib.warc.pipeline.PageStorePipeline": 200}},
)
