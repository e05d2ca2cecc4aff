"""Scrapy's spiders."""
