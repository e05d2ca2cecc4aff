"""What the crawl is doing: read from Redis in one place, for the monitor's line, /metrics and every table."""
