"""crawlproject itself."""
