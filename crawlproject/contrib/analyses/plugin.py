"""Analyses of images, for `CRAWL_ANALYSES`: hashes that tell near copies, colours, BlurHash."""

from crawlproject.plugins import Plugin

_HERE = "crawlproject.contrib.analyses.functions"
PLUGIN = Plugin(analyses={name: f"{_HERE}:{name}" for name in ("dhash", "phash", "colours", "blurhash")})
