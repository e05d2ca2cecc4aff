"""`scrapy report`: what was requested of a source, for the admin of that site."""

from crawlproject.plugins import Plugin

PLUGIN = Plugin(
    commands="crawlproject.contrib.report.commands",
    pages_of_source={"report": "crawlproject.contrib.report.rendering.page_of"},
)
