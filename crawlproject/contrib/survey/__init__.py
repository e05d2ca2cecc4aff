"""A survey of all that a crawl has fetched, from its events, by DuckDB."""
