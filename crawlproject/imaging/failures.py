"""What imaging raises; not in `crawlproject.errors`, which loads Scrapy: a decoder process does without it."""


class UnreadableImage(Exception):
    """The bytes are no picture that we can read; `str(error)` is the reason for the dead letter."""


class TooLargeImage(UnreadableImage):
    """The body, without its content coding, is larger than we take."""


class NoDecoder(OSError):
    """No decoder process can be started, whatever the picture; `str(error)` says why."""


class DecodersStopped(Exception):
    """The decoders have been stopped, and look at no more pictures."""


class MemoryNeeded(MemoryError):
    """Decoding takes more memory than it may: some `needed` bytes, 0 for unknown; `str(error)` says what does."""

    def __init__(self, reason: str, needed: int) -> None:
        super().__init__(reason)
        self.needed = needed
