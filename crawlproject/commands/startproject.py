"""`scrapy startproject`, with the add-on in the settings of the new project."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from string import Template

from scrapy.commands import startproject
from scrapy.utils.template import string_camelcase

from crawlproject.program import as_called

# In place of Scrapy's, which has DOWNLOAD_DELAY = 1 and CONCURRENT_REQUESTS_PER_DOMAIN = 1.
_SETTINGS = Template("""\
# Settings of $name: all of Scrapy's, and those of crawlproject (docs/settings.md)
#
#     https://docs.scrapy.org/en/latest/topics/settings.html

BOT_NAME = "$name"

SPIDER_MODULES = ["$name.spiders"]
NEWSPIDER_MODULE = "$name.spiders"

# The frontier, rates, robots.txt, address guard and retries of crawlproject
ADDONS = {"crawlproject.Addon": 0}

# How sites can reach you: a URL or mailto: address, sent in the User-Agent. No crawl starts without it
#CRAWL_CONTACT = "mailto:you@example.org"

# Without it, an embedded Valkey runs in the project's folder
#REDIS_URL = "redis://localhost:6379"

# Each source has a rate, by its size in a catalogue, or set by `crawlproject rate SITE 1`
#CRAWL_SOURCES = "sources.json"

#ITEM_PIPELINES = {
#    "$name.pipelines.${Name}Pipeline": 300,
#}

FEED_EXPORT_ENCODING = "utf-8"
""")


class Command(startproject.Command):
    """Creates a project whose spiders crawl as those of crawlproject, whichever program runs them."""

    def long_desc(self) -> str:
        return (
            "Create a project for spiders of your own, whose settings have the add-on of crawlproject. "
            "Example: scrapy startproject shops"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        with redirect_stdout(StringIO()) as said:
            super().run(args, opts)
        if not self.exitcode and not self.settings.getpriority(
            "TEMPLATES_DIR"
        ):  # templates of the user's own stay
            name = args[0]
            text = _SETTINGS.substitute(name=name, Name=string_camelcase(name))
            Path(args[-1], name, "settings.py").write_text(text, encoding="utf-8")
        sys.stdout.write(as_called(said.getvalue()))
