"""The frontier: what is to be crawled, kept in Redis and leased from there. Scrapy sees it as its scheduler."""
