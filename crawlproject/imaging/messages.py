"""The messages between a worker and its decoder processes.

A request: the memory that decoding is expected to take and the hard limit, both in bytes; what is wanted; the
lengths of the content codings and of the body; then both. A reply: its kind; the lengths of its text and of its
data; then both.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from crawlproject.models import DEFAULT_FORMATS, IMAGE_FORMATS, Analysis, ImageFacts, ProbedFacts, Thumbnail

MAX_MEMORY = 640 << 20  # bytes that one picture may have, beyond those of an idle decoder

REQUEST = struct.Struct("!QQBQQ")
REPLY = struct.Struct("!cII")
READY = b"r"  # sent once, at the start; the text is JSON: a list of what this system lacks for the sandbox
BAD_ANALYSIS = b"b"  # sent instead, and nothing after it; the text says which function cannot be loaded, and why
ANALYSIS = b"a"  # text and data as `packed` makes them
PROBED = b"p"  # the text is JSON: the facts
UNREADABLE = b"u"  # the text is JSON: the reason, and the facts of its header or null
TOO_LARGE = b"l"  # the text is the reason
NO_MEMORY = b"m"  # the text is JSON: what needs more memory than allowed, and how many bytes, 0 for unknown


class Wanted(IntEnum):
    """What is wanted of a body."""

    PLAIN = 0  # facts and thumbnails
    ANALYSED = 1  # these, and what analyses say of it
    BEGINNING = 2  # the facts in it: it is only the beginning of a picture
    WHOLE = 3  # the same, but it is the whole picture


@dataclass(frozen=True, slots=True)
class Job:
    """What a decoder does with each picture; `timeout` is in seconds.

    `max_pixels`, `quality`, `sizes`, `mode`, `form` (of the thumbnails) and `formats` are as in `analyse`.
    `max_size` is the largest size of a body in bytes, without its content codings; with `return_bodies` it is
    returned like that, if it had any. `analyses` are functions, named as in `CRAWL_ANALYSES`. Of what is only
    probed, `beginning` bytes are looked at.
    """

    max_pixels: int
    max_size: int
    quality: int
    timeout: float
    sizes: tuple[int, ...] = (640,)
    mode: str = "keep_ratio_largest"
    form: str = "JPEG"
    formats: tuple[str, ...] = DEFAULT_FORMATS
    return_bodies: bool = False
    analyses: tuple[str, ...] = ()
    beginning: int = 32_768

    @property
    def analysis_names(self) -> tuple[str, ...]:
        """The names of the analyses in events."""
        return tuple(name.partition(":")[2] for name in self.analyses)


def packed(made: Analysis) -> tuple[str, bytes]:
    """Return text and data of a reply: JSON, with the lengths of thumbnails and body, and these in a row."""
    thumbnails = [(each.width, each.height, len(each.data)) for each in made.thumbnails]
    text = {
        "facts": asdict(made.facts),
        "thumbnails": thumbnails,
        "body": len(made.body),
        "results": made.results,
        "errors": made.errors,
    }
    return json.dumps(text), b"".join((*(each.data for each in made.thumbnails), made.body))


def probed(text: bytes) -> ProbedFacts:
    """Return the facts in a reply. Raises ValueError or TypeError, if it has none."""
    facts = ProbedFacts(**json.loads(text))
    if facts.format not in IMAGE_FORMATS:
        raise ValueError(f"of unknown format {facts.format!r}")
    return facts


def unpacked(text: bytes, data: bytes) -> Analysis:
    """Return what `packed` has packed. Raises ValueError, TypeError or KeyError, if it was not that."""
    told = json.loads(text)
    facts = ImageFacts(**told["facts"])
    if facts.format not in IMAGE_FORMATS:
        raise ValueError(f"of unknown format {facts.format!r}")
    sizes = [(int(width), int(height)) for width, height, _ in told["thumbnails"]]
    lengths = [int(length) for _, _, length in told["thumbnails"]] + [int(told["body"])]
    if min(lengths) < 0 or sum(lengths) != len(data):
        raise ValueError(f"{len(data)} bytes of data, not {lengths}")
    *parts, body = (data[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))
    thumbnails = (Thumbnail(part, *size) for part, size in zip(parts, sizes, strict=True))
    return Analysis(facts, tuple(thumbnails), body, dict(told["results"]), dict(told["errors"]))
