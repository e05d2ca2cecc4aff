"""`scrapy shell`, beside the crawl: nothing is stored in the frontier."""

from scrapy.commands import shell

from crawlproject import cli

Command = cli.alone(shell.Command, __name__, "scrapy shell https://example.org/a.html")
