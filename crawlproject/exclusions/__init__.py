"""What is excluded from the crawl."""
