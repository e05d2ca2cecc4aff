"""A store in a folder or in S3 for what waits beyond the windows of sources."""
