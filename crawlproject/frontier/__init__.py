"""The frontier: the requests to be crawled, kept in Redis and leased from there. Scrapy uses it as scheduler."""
