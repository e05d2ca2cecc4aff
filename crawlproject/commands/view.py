"""`scrapy view`, beside the crawl: nothing is stored in the frontier."""

from scrapy.commands import view

from crawlproject import cli

Command = cli.alone(view.Command, __name__, "scrapy view https://example.org/a.html")
