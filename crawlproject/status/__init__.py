"""What the crawl is doing: read from Redis in one place, for everything that shows it."""
