"""`scrapy check`, beside the crawl: nothing is stored in the frontier."""

from __future__ import annotations

from typing import Any, ClassVar

from scrapy.commands import check


class Command(check.Command):
    """Scrapy's command; its requests keep to the rates of their sources like all others."""

    default_settings: ClassVar[dict[str, Any]] = {**check.Command.default_settings, "FRONTIER_ALONE": True}

    def long_desc(self) -> str:
        return f"{super().long_desc()} Example: scrapy check shop"
