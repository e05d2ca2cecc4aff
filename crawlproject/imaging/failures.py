"""The errors of imaging; not in `crawlproject.errors`, which loads Scrapy: a decoder process does not need it."""

from __future__ import annotations

from crawlproject.models import ImageFacts
from crawlproject.texts import printable


class UnreadableImage(Exception):
    """The bytes are not a readable picture; `str(error)` is the reason, of 300 printable characters at most.

    `facts` are those of its header, None where that cannot be read either.
    """

    def __init__(self, reason: str, facts: ImageFacts | None = None) -> None:
        super().__init__(printable(reason, 300))
        self.facts = facts


class TooLargeImage(UnreadableImage):
    """The body, without its content codings, is larger than allowed."""


class TookTooLong(UnreadableImage):
    """It was not decoded, or analysed, in the time that a picture may take."""


class NoDecoder(OSError):
    """No decoder process can be started, for any picture; `str(error)` says why."""


class AnalysesNotLoaded(NoDecoder):
    """Nor can it be, before CRAWL_ANALYSES names other functions; `str(error)` says which cannot be loaded."""


class DecodersStopped(Exception):
    """The decoders have been stopped and decode no more pictures."""


class MemoryNeeded(MemoryError):
    """Decoding needs more memory than allowed; `str(error)` says for what."""
