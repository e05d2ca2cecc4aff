"""Formats of pictures, for `CRAWL_FORMATS`: SVG, HEIF, JPEG XL."""
