"""Settings as the documentation of the images pipeline has them; nothing that would slow it down."""

import os

BOT_NAME = "gallery"
SPIDER_MODULES = ["gallery.spiders"]
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False

CONCURRENT_REQUESTS = 64
CONCURRENT_REQUESTS_PER_DOMAIN = 64
DOWNLOAD_DELAY = 0
COOKIES_ENABLED = False
ROBOTSTXT_OBEY = False  # as with crawlproject, of which the sites here ask nothing

FULL = os.environ.get("STOCK_FULL", "1") == "1"
ITEM_PIPELINES = {f"gallery.pipelines.{'WithFullPictures' if FULL else 'ThumbnailsOnly'}": 1}
IMAGES_STORE = os.environ.get("IMAGES_STORE", "images")
IMAGES_THUMBS = {"big": (640, 640)}
