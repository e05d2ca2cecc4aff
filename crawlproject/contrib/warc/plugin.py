"""The content store: pages as they came, in WARC files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


PLUGIN = Plugin(
    settings=WarcSettings,
    commands="crawlproject.contrib.warc.commands",
    checks={"pages_store": "crawlproject.contrib.warc.store.check_page_store"},
    scrapy={"ITEM_PIPELINES": {"crawlproject.contrib.warc.pipeline.PageStorePipeline": 200}},
)
