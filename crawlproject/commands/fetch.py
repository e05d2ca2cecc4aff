"""`scrapy fetch`, beside the crawl: nothing is stored in the frontier."""

from scrapy.commands import fetch

from crawlproject import cli

Command = cli.alone(fetch.Command, __name__, "scrapy fetch --nolog https://example.org/a.html")
