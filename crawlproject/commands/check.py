"""`scrapy check`, beside the crawl: nothing is stored in the frontier."""

from scrapy.commands import check

from crawlproject import cli

Command = cli.alone(check.Command, __name__, "scrapy check shop")
