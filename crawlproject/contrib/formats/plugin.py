"""Formats of pictures that Pillow alone does not read: SVG, HEIF, JPEG XL."""

from crawlproject.plugins import Plugin

_HERE = "crawlproject.contrib.formats"
PLUGIN = Plugin(
    formats={"SVG": f"{_HERE}.svg:FORMAT", "HEIF": f"{_HERE}.raster:HEIF", "JXL": f"{_HERE}.raster:JXL"}
)
