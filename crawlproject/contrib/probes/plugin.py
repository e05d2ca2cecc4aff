"""Probes: from the beginning of a picture whether it is there, what it is, and whether it has changed."""

from crawlproject.plugins import Plugin

_HERE = "crawlproject.contrib.probes"
PLUGIN = Plugin(
    modes={"probe": f"{_HERE}.mode.Probe"},
    inspections={name: f"{_HERE}.beginning:inspect_{name}" for name in ("beginning", "whole")},
    readings={"probe": f"{_HERE}.feeding.Probes"},
    scrapy={"DOWNLOADER_MIDDLEWARES_BASE": {f"{_HERE}.mode.ProbeMiddleware": 510}},
)
