"""The page on which an operator watches the crawl and controls it; `scrapy monitor` serves it."""
