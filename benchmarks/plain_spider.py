"""A plain Scrapy spider, as its users write one: every HTML page of the sites, link by link, all in memory.

    scrapy runspider links.py -a urls=FILE

The settings are those of a broad crawl in Scrapy's documentation, as far as they make it faster.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import scrapy
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor


class Links(scrapy.Spider):
    """Follows all links within the hosts that it starts from, and yields an item for each page."""

    name = "links"
    custom_settings: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "COOKIES_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "INFO",
        "TELNETCONSOLE_ENABLED": False,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    }

    def __init__(self, urls: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = Path(urls).read_text().split()
        self.links = LinkExtractor(allow_domains=[url.split("/")[2] for url in self.start_urls])

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """Yield the page, and a request for each of its links."""
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)
