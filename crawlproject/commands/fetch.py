"""`scrapy fetch`, beside the crawl: nothing is stored in the frontier."""

from __future__ import annotations

from typing import Any, ClassVar

from scrapy.commands import fetch


class Command(fetch.Command):
    """Scrapy's command; its requests keep to the rates of their sources like all others."""

    default_settings: ClassVar[dict[str, Any]] = {**fetch.Command.default_settings, "FRONTIER_ALONE": True}

    def long_desc(self) -> str:
        return f"{super().long_desc()} Example: scrapy fetch --nolog https://example.org/a.html"
