"""A second spider with work for the same sources, for the politeness harness."""

from __future__ import annotations

from crawlproject.spiders.images import ImagesSpider


class SecondSpider(ImagesSpider):
    """Does as `images`, with a frontier of its own."""

    name = "second"
