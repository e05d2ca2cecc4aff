"""Hands every URL of a list to the pipeline."""

from pathlib import Path

import scrapy


class PicturesSpider(scrapy.Spider):
    """Yields an item for each line of the file that `-a urls=FILE` names."""

    name = "pictures"

    async def start(self):
        """Yield the items."""
        with Path(self.urls).open() as file:
            for line in file:
                yield {"image_urls": [line.strip()]}
