"""A polite, distributed image crawler on Scrapy and Redis. docs/flow.md follows one image through it."""

__version__ = "0.1.0"
