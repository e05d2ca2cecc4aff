"""`scrapy parse`, beside the crawl: nothing is stored in the frontier."""

from scrapy.commands import parse

from crawlproject import cli

Command = cli.alone(parse.Command, __name__, "scrapy parse --spider=shop https://example.org/a.html")
