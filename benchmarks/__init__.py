"""The crawler measured: against what was promised, and against Scrapy's stock pipeline. Not run by the tests."""
