"""The commands `scrapy index` and `scrapy page`."""
