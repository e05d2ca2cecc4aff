"""Commands of `scrapy`, each in the module of its name; `crawlproject/cli.py` holds what they share."""

from crawlproject import plugins

__path__ += plugins.command_folders()  # those of plug-ins: Scrapy looks into one package
