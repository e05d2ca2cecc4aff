"""Analyses of images, for `CRAWL_ANALYSES`."""
