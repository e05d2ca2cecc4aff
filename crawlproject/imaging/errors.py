"""What imaging raises; not in `crawlproject.errors`, which loads Scrapy: a decoder process does without it."""


class UnreadableImage(Exception):
    """The bytes are no picture that we can read; `str(error)` is the reason for the dead letter."""
