"""The command `scrapy report`."""
