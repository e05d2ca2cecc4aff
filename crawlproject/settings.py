"""Scrapy's settings, in the order in which an image meets them. What they mean: docs/settings.md.

A project with settings of its own has them by the add-on (addon.py), or by `from crawlproject.settings import *`.
"""

import sys

from scrapy.settings import default_settings

from crawlproject import plugins, program
from crawlproject.config import COMPONENTS, RESOLVER, environment
from crawlproject.errors import ConfigError

BOT_NAME = "crawlproject"
SPIDER_MODULES = ["crawlproject.spiders"]
NEWSPIDER_MODULE = "crawlproject.spiders"
COMMANDS_MODULE = "crawlproject.commands"

# The process: uvloop saves a fifth of a worker's CPU; no remote control; no items in the log.
TWISTED_REACTOR = COMPONENTS["TWISTED_REACTOR"]
ASYNCIO_EVENT_LOOP = "uvloop.Loop"
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
LOG_LEVEL = "INFO"
LOG_FORMATTER = "crawlproject.logs.RequestLog"
STATS_CLASS = "crawlproject.runtime.Stats"

# Frontier
SCHEDULER = COMPONENTS["SCHEDULER"]
SCHEDULER_QUEUE_CLASS = COMPONENTS["SCHEDULER_QUEUE_CLASS"]
DUPEFILTER_CLASS = COMPONENTS["DUPEFILTER_CLASS"]

# The most requests that a worker has in flight; frontier/shares.py shares them out.
CONCURRENT_REQUESTS = 2000
DOWNLOAD_DELAY = 0
SCRAPER_SLOT_MAX_ACTIVE_SIZE = 64_000_000  # bytes of bodies in the pipelines; beyond it, leasing pauses

# Downloader
DOWNLOADER = COMPONENTS["DOWNLOADER"]
DEFAULT_REQUEST_HEADERS = {"Accept": "*/*"}  # if formats were named, a CDN would convert the picture
COOKIES_ENABLED = False
ROBOTSTXT_OBEY = False
RETRY_ENABLED = False  # one place decides on retries: politeness/outcomes.py
REDIRECT_MAX_TIMES = 5
REDIRECT_PRIORITY_ADJUST = 0
METAREFRESH_ENABLED = False
HTTPPROXY_ENABLED = False  # a proxy resolves names itself, past the address guard
TWISTED_DNS_RESOLVER = RESOLVER
DOWNLOAD_VERIFY_CERTIFICATES = True
HTTPCACHE_ENABLED = False
DOWNLOAD_MAXSIZE = 50_000_000
DOWNLOAD_WARNSIZE = 0
DOWNLOAD_TIMEOUT = 30
# What follows stands in the settings called base: a spider's `custom_settings` add to it, and take nothing away.
DOWNLOAD_HANDLERS_BASE = {
    **default_settings.DOWNLOAD_HANDLERS_BASE,
    "http": "crawlproject.net.handler.CrawlDownloadHandler",
    "https": "crawlproject.net.handler.CrawlDownloadHandler",
    "file": None,
    "ftp": None,
    "s3": None,
    "data": None,
}
# In the order of requests; responses pass in reverse, through redirects to decompression.
DOWNLOADER_MIDDLEWARES_BASE = {
    **default_settings.DOWNLOADER_MIDDLEWARES_BASE,
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,  # whatever ROBOTSTXT_OBEY says: ours does
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
    "crawlproject.middlewares.adapted.OffsiteMiddleware": 50,
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "crawlproject.middlewares.adapted.UserAgentMiddleware": 500,
    "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
    "crawlproject.middlewares.adapted.CompressionMiddleware": 590,
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
    "crawlproject.middlewares.adapted.CheckedRedirectMiddleware": 600,
    "scrapy.downloadermiddlewares.stats.DownloaderStats": None,
    "crawlproject.middlewares.adapted.StatsMiddleware": 850,
    "crawlproject.middlewares.gate.AddressMiddleware": 930,
    "crawlproject.middlewares.gate.RobotsMiddleware": 940,
    "crawlproject.middlewares.gate.TokenMiddleware": 950,
}

# For spiders whose callbacks yield requests; `images` leaves out what it has no use for (spiders/images.py). Ours
# sees what has passed all others.
SPIDER_MIDDLEWARES_BASE = {
    **default_settings.SPIDER_MIDDLEWARES_BASE,
    "crawlproject.middlewares.callback_requests.CallbackRequestsMiddleware": 10,
}

# Items: Scrapy's default of 100 workers per response costs 0.7 ms
CONCURRENT_ITEMS = 1
IMAGES_STORE = ".crawl/thumbnails"
ITEM_PIPELINES = {
    "crawlproject.pipelines.thumbnail.ThumbnailPipeline": 100,
}

# Alongside the flow, in every worker
EXTENSIONS_BASE = {
    **default_settings.EXTENSIONS_BASE,
    # Not even loaded: it would load aiohttp, a fifteenth of a worker's start. To have it, name it in EXTENSIONS.
    "scrapy.extensions.remote_control.RemoteControl": None,
    "crawlproject.extensions.signal_manager.Signals": 0,
    "crawlproject.extensions.lease_keeper.LeaseKeeper": 100,
    "crawlproject.extensions.circuits.Circuits": 150,
    "crawlproject.extensions.membership.Membership": 200,
    "crawlproject.extensions.status_report.StatusReport": 300,
}

program.load_one_command()

# What plug-ins add to the dicts above
try:
    for _name, _more in plugins.scrapys_settings().items():
        globals()[_name] = {**globals().get(_name, {}), **_more}
except ConfigError as error:  # nothing has begun that would report it
    sys.exit(f"{program.name()}: {error}")

# Environment variables override the values above; `-s` overrides both.
globals().update(environment())
