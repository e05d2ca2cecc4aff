"""A plain Scrapy project with the stock ImagesPipeline."""
