"""What a worker and its decoder processes say to each other.

A request is what the picture may be expected to take and the hard limit, both in bytes, the lengths of its content
codings and of its body, and both. A reply is its kind, the lengths of its text and of its thumbnail, and both.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

REQUEST = struct.Struct("!QQQQ")
REPLY = struct.Struct("!cII")
READY = b"r"  # sent once, at the start
ANALYSIS = b"a"  # the text is the facts as JSON
UNREADABLE = b"u"  # the text is the reason
TOO_LARGE = b"l"  # likewise
NO_MEMORY = b"m"  # the text is JSON: what takes more memory than it may, and how many bytes, 0 for unknown


@dataclass(frozen=True, slots=True)
class Job:
    """What a decoder does with each picture: `max_pixels` and `quality` as in `analyse`, `timeout` in seconds.

    `max_size` is that of a body, in bytes, without its content codings.
    """

    max_pixels: int
    max_size: int
    quality: int
    timeout: float
