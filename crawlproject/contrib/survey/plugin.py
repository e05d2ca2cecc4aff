"""`scrapy survey`: what a whole crawl has come to."""

from crawlproject.plugins import Plugin

PLUGIN = Plugin(commands="crawlproject.contrib.survey.commands")
