"""The command `scrapy survey`."""
