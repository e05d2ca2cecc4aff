"""The Scrapy project."""
