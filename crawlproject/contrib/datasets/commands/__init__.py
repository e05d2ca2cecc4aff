"""The command `scrapy dataset`."""
