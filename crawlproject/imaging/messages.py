"""The messages between a worker and its decoder processes.

A request: the memory that decoding is expected to take and the hard limit, both in bytes; the lengths of the
content codings and of the body; then both. A reply: its kind; the lengths of its text and of its thumbnail; then
both.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crawlproject.models import DEFAULT_FORMATS

MAX_MEMORY = 640 << 20  # bytes that one picture may have, beyond those of an idle decoder

REQUEST = struct.Struct("!QQQQ")
REPLY = struct.Struct("!cII")
READY = b"r"  # sent once, at the start; the text is JSON: a list of what this system lacks for the sandbox
ANALYSIS = b"a"  # the text is the facts as JSON
UNREADABLE = b"u"  # the text is JSON: the reason, and the facts of its header or null
TOO_LARGE = b"l"  # the text is the reason
NO_MEMORY = b"m"  # the text is JSON: what needs more memory than allowed, and how many bytes, 0 for unknown


@dataclass(frozen=True, slots=True)
class Job:
    """What a decoder does with each picture; `timeout` is in seconds.

    `max_pixels`, `quality`, `longest_side`, `form` (of the thumbnail) and `formats` are as in `analyse`.
    `max_size` is the largest size of a body in bytes, without its content codings.
    """

    max_pixels: int
    max_size: int
    quality: int
    timeout: float
    longest_side: int = 640
    form: str = "JPEG"
    formats: tuple[str, ...] = DEFAULT_FORMATS
