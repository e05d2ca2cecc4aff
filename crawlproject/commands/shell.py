"""`scrapy shell`, beside the crawl: nothing is stored in the frontier."""

from __future__ import annotations

from typing import Any, ClassVar

from scrapy.commands import shell


class Command(shell.Command):
    """Scrapy's command; its requests keep to the rates of their sources like all others."""

    default_settings: ClassVar[dict[str, Any]] = {**shell.Command.default_settings, "FRONTIER_ALONE": True}

    def long_desc(self) -> str:
        return f"{super().long_desc()} Example: scrapy shell https://example.org/a.html"
