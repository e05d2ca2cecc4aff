"""A spider of your own: the captions of museums' pictures, at each museum's rate.

export CRAWL_CONTACT=mailto:you@example.org CRAWL_ALLOW_NETWORKS=127.0.0.0/8 CRAWL_SOURCES=museums/sources.json
PYTHONPATH=examples/own_spider crawlproject crawl captions -s SPIDER_MODULES=captions -a out=captions.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.http import Response


class Captions(scrapy.Spider):
    """Reads two start pages and yields an item for each picture there."""

    name = "captions"
    start_urls = ["http://127.0.0.1:8000/citymuseum/", "http://127.0.0.2:8000/naturemuseum/"]
    custom_settings = {"ITEM_PIPELINES": {"captions.Lines": 500}}

    def parse(self, response: Response) -> Iterator[dict[str, str]]:
        """Yield what a page says about its pictures."""
        for image in response.css("img"):
            yield {"page": response.url, "url": response.urljoin(image.attrib["src"]), "alt": image.attrib["alt"]}


class Lines:
    """Writes each item at once: when its request ends, the item is on disk."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Lines:
        """Write to the file that `-a out=FILE` names."""
        return cls(getattr(crawler.spider, "out", "captions.jsonl"))

    def process_item(self, item: dict[str, str]) -> dict[str, str]:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(item) + "\n")
        return item
