"""The messages between a worker and its decoder processes.

A request: the memory that decoding may take, in bytes; what is wanted; the lengths of the content codings and of
the body; then both. A reply: its kind; the lengths of its text and of its
data; then both.

A picture may have taken its decoder over. So a reply is read as a stranger's: whatever does not fit its schema
raises one of `NO_ANSWER`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from crawlproject import plugins
from crawlproject.imaging.failures import MemoryNeeded, TooLargeImage, UnreadableImage
from crawlproject.models import DEFAULT_FORMATS, Analysis, Format, ImageFacts, Thumbnail
from crawlproject.texts import compact_json, printable

if TYPE_CHECKING:
    from crawlproject.models import Event

MAX_MEMORY = 640 << 20  # bytes that one picture may have, beyond those of an idle decoder
MAX_DIRECTORY = 16_384  # bytes of JSON of a directory of EXIF (IFD0, Exif, GPS); the tags after it are left out
MOST_BYTES = 4096  # of the JSON of an analysis' result
MOST_DEPTH = 16  # arrays and objects in each other, in a result

REQUEST = struct.Struct("!QBQQ")
REPLY = struct.Struct("!cII")
READY = (
    b"r"  # sent once, at the start; the text is JSON: what the sandbox lacks here, and what of plug-ins is broken
)
BAD_ANALYSIS = b"b"  # sent instead, and nothing after it; the text says which function cannot be loaded, and why
ANALYSIS = b"a"  # text and data as `packed` makes them
INSPECTED = b"i"  # the text is JSON: what an inspection has found
UNREADABLE = b"u"  # the text is JSON: the reason, and the facts of its header or null
TOO_LARGE = b"l"  # the text is the reason
NO_MEMORY = b"m"  # the text says what needs more memory than allowed


# What is wanted of a body: facts and thumbnails; these, and what analyses say of it; from 2 on an inspection.
PLAIN, ANALYSED, INSPECTIONS = range(3)


@dataclass(frozen=True, slots=True)
class Job:
    """What a decoder does with each picture; `timeout` is in seconds.

    Of the thumbnails, `sizes` are in pixels, `mode` is one of `THUMBNAIL_MODES`, `quality` 1 to 95, `form` one of
    `THUMBNAIL_FORMATS`; smaller pictures are enlarged to them if `enlarge`. A picture of another of the `formats`,
    or of more than `max_pixels` pixels, is refused.
    `max_size` is the largest size of a body in bytes, without its content codings; with `return_bodies` it is
    returned like that, if it had any. `analyses` are functions, named as in `CRAWL_ANALYSES`. `plugins` are the
    paths of all formats that plug-ins read, `inspections` those of their functions of that kind, by name.
    """

    max_pixels: int
    max_size: int
    quality: int
    timeout: float
    sizes: tuple[int, ...] = (640,)
    mode: str = "keep_ratio_largest"
    form: str = "JPEG"
    enlarge: bool = False
    formats: tuple[str, ...] = DEFAULT_FORMATS
    return_bodies: bool = False
    analyses: tuple[str, ...] = ()
    plugins: Mapping[str, str] = field(default_factory=lambda: plugins.offered("formats"))
    inspections: Mapping[str, str] = field(default_factory=lambda: plugins.offered("inspections"))

    def plugin(self, name: str) -> Format | None:
        """Return a format that a plug-in reads; None for another."""
        return plugins.format_at(self.plugins[name]) if name in self.plugins else None

    def has_pixels(self, name: str) -> bool:
        """Tell whether pictures of a format are decoded."""
        one = self.plugin(name)
        return one is None or one.read_size is None

    def without(self, broken: Collection[str]) -> Job:
        """Return the job without formats of plug-ins that cannot be loaded."""
        paths = {name: path for name, path in self.plugins.items() if name not in broken}
        return replace(self, formats=tuple(each for each in self.formats if each not in broken), plugins=paths)

    @property
    def analysis_names(self) -> tuple[str, ...]:
        """The names of the analyses in events."""
        return tuple(name.partition(":")[2] for name in self.analyses)


class Reply(NamedTuple):
    """A reply to `job`; `size` is that of the body in bytes, None where content codings make that unknown."""

    kind: bytes
    text: bytes
    data: bytes
    job: Job
    size: int | None


@dataclass(frozen=True, slots=True)
class Inspected:
    """Item of a spider: a body that a decoder does not decode: it calls a plug-in's function of that name instead.

    `event` makes the event of the reply, and raises one of `NO_ANSWER` for a reply that cannot be true.
    """

    inspection: str
    event: Callable[[Reply], Event]
    source: str
    status: int
    body: bytes = field(repr=False)
    codings: tuple[str, ...]


NO_ANSWER = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


def packed(made: Analysis) -> tuple[str, bytes]:
    """Return text and data of a reply: JSON, with the lengths of thumbnails and body, and these in a row."""
    thumbnails = [(each.width, each.height, len(each.data)) for each in made.thumbnails]
    text = {
        "facts": made.facts.named(),
        "thumbnails": thumbnails,
        "body": len(made.body),
        "results": made.results,
        "errors": made.errors,
    }
    return compact_json(text), b"".join((*(each.data for each in made.thumbnails), made.body))


def unpacked(reply: Reply) -> Analysis:
    """Return what `packed` has packed. Raises one of `NO_ANSWER`."""
    job, told = reply.job, json.loads(reply.text)
    lengths = [*(length for _, _, length in told["thumbnails"]), told["body"]]
    if not all(_is_whole(each, 0) for each in lengths) or sum(lengths) != len(reply.data):
        raise ValueError(f"{len(reply.data)} bytes of data, not as it says")
    *parts, body = (reply.data[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))
    thumbnails = [Thumbnail(part, *sides) for part, (*sides, _) in zip(parts, told["thumbnails"], strict=True)]
    if body and (reply.size is not None or not job.return_bodies):
        raise ValueError("a body that was not asked for")
    facts = facts_of(ImageFacts, told["facts"], reply._replace(size=len(body)) if body else reply, job.max_pixels)
    count = len(job.sizes) if job.has_pixels(facts.format) else 0
    if len(thumbnails) != count or not all(_is_thumbnail(each, job.form) for each in thumbnails):
        raise ValueError(f"no {count} thumbnails in {job.form}")
    results, errors = dict(told["results"]), dict(told["errors"])
    for each in results.values():
        check_json(each, MOST_BYTES)
    names = results.keys() | errors.keys()
    if not names <= set(job.analysis_names) or not all(isinstance(said, str) for said in errors.values()):
        raise ValueError("analyses that were not requested, or an error that is not text")
    return Analysis(facts, tuple(thumbnails), body, results, {name: printable(errors[name]) for name in errors})


def refused(reply: Reply) -> UnreadableImage | MemoryNeeded:
    """Return the error that a reply tells. Raises one of `NO_ANSWER`."""
    if reply.kind == TOO_LARGE:
        return TooLargeImage(reply.text.decode())
    if reply.kind == NO_MEMORY:
        return MemoryNeeded(printable(reply.text.decode(), 300))
    reason, more = json.loads(reply.text)
    if isinstance(reason, str) and reply.kind == UNREADABLE:
        return UnreadableImage(reason, None if more is None else facts_of(ImageFacts, more, reply))
    raise ValueError(f"of unknown kind {reply.kind!r}")


def check_json(value: Any, most: int) -> int:
    """Return the bytes of a value as JSON. Raises ValueError for JSON that not every reader can hold.

    It has `most` bytes and `MOST_DEPTH` levels at most, and no halves of surrogates, no NaN, no Infinity, and no
    integers beyond 64 bits.
    """
    size = len(compact_json(value).encode())
    if size > most:
        raise ValueError(f"{size} bytes of JSON, more than {most}")
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        if any(type(part) is int and not -(2**63) <= part < 2**64 for part in level):
            raise ValueError("an integer of more than 64 bits")
        nested = [each for each in level if isinstance(each, (dict, list))]
        level = [part for each in nested for part in (each.values() if isinstance(each, dict) else each)]
    if level:
        raise ValueError(f"JSON that is nested more than {MOST_DEPTH} levels deep")
    return size


def _is_whole(value: Any, least: int, most: int = 2**63 - 1) -> bool:
    return type(value) is int and least <= value <= most  # True is none


def _is_thumbnail(made: Thumbnail, form: str) -> bool:
    sides = (made.width, made.height)
    return _BEGINNINGS[form].match(made.data) is not None and all(_is_whole(each, 1, _LONGEST) for each in sides)


def _is_exif(value: Any) -> bool:
    """Tell whether it can be EXIF, as `read_exif` returns it: two directories, and within them that of GPS."""
    tags = dict(value)
    gps = tags.pop("0x8825", {})
    if check_json(value, 4 * MAX_DIRECTORY) > MAX_DIRECTORY:  # as hardly any are
        check_json(tags, 2 * MAX_DIRECTORY)
        check_json(gps, MAX_DIRECTORY)
    return isinstance(value, dict) and isinstance(gps, dict) and all(map(_TAG.fullmatch, (*tags, *gps)))


_TAG = re.compile("0x[0-9a-f]{1,4}")
_DIGEST = re.compile("[0-9a-f]{64}")  # SHA-256
_BEGINNINGS = {"JPEG": re.compile(b"\xff\xd8\xff"), "WebP": re.compile(b"RIFF.{4}WEBP", re.DOTALL)}
_LONGEST = 65_535  # pixels of a side of a thumbnail, as of any JPEG
_FACTS: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(("width", "height", "filesize"), lambda value: _is_whole(value, 1)),
    "compression_quality": lambda value: _is_whole(value, 1, 100),
    "format": lambda value: isinstance(value, str),
    "sha256": _DIGEST.fullmatch,
    "exif": _is_exif,
}
F = TypeVar("F")


def facts_of(
    kind: type[F],
    told: Any,
    reply: Reply,
    max_pixels: float = math.inf,
    unknown: Collection[str] = ("compression_quality", "exif"),
) -> F:
    """Return the facts that a reply tells, some of those of `ImageFacts`, of as many pixels at most.

    Those in `unknown` may be None. Raises one of `NO_ANSWER`.
    """
    facts: Any = kind(**told)
    for name, value in told.items():
        if not ((value is None and name in unknown) or _FACTS[name](value)):
            raise ValueError(f"its {name} is {value!r:.100}")
    if facts.format not in reply.job.formats:
        raise ValueError(f"of unknown format {facts.format!r:.100}")
    if reply.job.has_pixels(facts.format) and (facts.width or 1) * (facts.height or 1) > max_pixels:
        raise ValueError(f"{facts.width} x {facts.height} pixels")
    size = told.get("filesize", reply.size)
    if size != reply.size and (reply.size is not None or size > reply.job.max_size):
        raise ValueError(f"{size} bytes, not {reply.size}")
    found: F = facts
    return found
