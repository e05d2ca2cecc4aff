"""The page on which an operator sees the crawl and steers it; `scrapy monitor` serves it."""
