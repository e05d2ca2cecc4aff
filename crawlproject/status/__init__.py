"""What the crawl is doing: read from Redis in one place, for every face that shows it."""
