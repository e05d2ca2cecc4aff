"""Commands of `scrapy`, each in the module of its name; `crawlproject/cli.py` holds what they share."""
