"""The data that passes between the parts, and its names in `request.meta`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from crawlproject.texts import one_line, without_userinfo

if TYPE_CHECKING:
    from scrapy import Request

# Names in request.meta. The project puts nothing else there.
LEASE = "lease"  # Lease: what this request owes the frontier; shared by reference, never copied
LED_BY = "led_by"  # Lease of the response in which this request was found, until the scheduler has it
IDENTIFIER = "identifier"  # str: the picture's identifier
SOURCE = "source"  # str: the source the picture is of, in its event: as its seed names it
PACED_AS = (
    "paced_as"  # str: the source that the picture is crawled, counted and halted as (see frontier/scheduler.py)
)
RETRIES = "retries"  # int: failed attempts so far that cost a retry
FREE_RETRIES = "free_retries"  # int: 429s and 503s with Retry-After so far, which cost no retry
SLOT = "slot"  # Slot: the send slot of a request for a robots.txt; None once it is spent
REQUESTED = "requested"  # Requested: what a request for a robots.txt has sent
PASSAGE = "passage"  # net.send_slot.Passage: what a request that passed the gate goes out with
AGAIN = "again"  # bool: skip the seen filter
TLS_FAILURE = "tls_failure"  # str: what is wrong with the site's certificate, where that is only recorded
FETCH_TIME = "fetch_time"  # float: seconds of the last download, to its last byte or its failure; None: not known
HEADS = "heads"  # net.connections.Heads: as they went over the wire, for spiders that keep exchanges
OPT_OUT = "opt_out"  # list of str: the opt-outs of response and robots.txt that do not forbid keeping the picture
SCOPE = "scope"  # str: which links are followed from a page (pages/scope.py), where its seed says that
FOUND = "found"  # dict: what the page that a picture was found on says of it, by the names in `OF_FOUND`
VIA = "via"  # list: when a page was found, and on which one (frontier/codec.py)
EXTRA = "extra"  # dict: what the seed says beside, which its events and its dead letter repeat
SITEMAP = "sitemap"  # int: it is a sitemap, with so many indexes above it
MODE = "crawl_mode"  # list: the mode in which the picture is fetched, and its value (frontier/modes.py)
GONE = "gone"  # collection of int: statuses of link rot at the source that answered, beside 404 and 410
REVISIT = "revisit"  # list: what is known of a page or sitemap that is looked at again (pages/revisits.py, Look)
MOST_DEPTH = "most_depth"  # int: how many links away from its seed a page may be, where the seed says that


PRIORITIES = 5  # 0 to 4; the highest goes first

# The known opt-outs, by their names in events and settings, and the header that declares each.
OPT_OUTS: Mapping[str, str] = {
    "noai": "X-Robots-Tag",
    "noimageai": "X-Robots-Tag",
    "noindex": "X-Robots-Tag",
    "noimageindex": "X-Robots-Tag",
    "tdm-reservation": "TDM-Reservation",
    "content-signal:ai-input": "Content-Signal",
    "content-signal:ai-train": "Content-Signal",
    "content-signal:search": "Content-Signal",
    "content-usage:ai": "Content-Usage",
    "content-usage:ai-output": "Content-Usage",
    "content-usage:ai-use": "Content-Usage",
    "content-usage:all": "Content-Usage",
    "content-usage:bots": "Content-Usage",
    "content-usage:genai": "Content-Usage",
    "content-usage:inference": "Content-Usage",
    "content-usage:search": "Content-Usage",
    "content-usage:tdm": "Content-Usage",
    "content-usage:train-ai": "Content-Usage",
    "content-usage:train-genai": "Content-Usage",
}


# What is known of a picture that was found on a page: fields of its event, and where they come from.
OF_FOUND = ("found_on", "licence", "alt", "title", "creator")


# What a row of the catalogue may call link rot, beside 404 and 410: not what says how, or how fast, we may ask.
GONE_STATUSES = frozenset(range(400, 500)) - {408, 416, 425, 429}


class FileType(NamedTuple):
    """How the files of a format are stored: the ending of their names, and their content type."""

    suffix: str
    content_type: str


# By the names of the setting CRAWL_THUMBNAIL_FORMAT, which are Pillow's but for case.
THUMBNAIL_FORMATS: Mapping[str, FileType] = {
    "JPEG": FileType(".jpg", "image/jpeg"),
    "WebP": FileType(".webp", "image/webp"),
}

# By the names of the setting CRAWL_THUMBNAIL_MODE, which are img2dataset's: what a thumbnail's size is of.
THUMBNAIL_MODES: Mapping[str, str] = {
    "keep_ratio_largest": "its longest side",
    "keep_ratio": "its shortest side",
    "center_crop": "a square in its middle",
    "border": "a white square around it",
}

# The formats of pictures that can be read without plug-ins, by their names in events and in the setting
# CRAWL_FORMATS, which are Pillow's; and how originals in them are stored.
IMAGE_FORMATS: Mapping[str, FileType] = {
    "JPEG": FileType(".jpg", "image/jpeg"),
    "PNG": FileType(".png", "image/png"),
    "GIF": FileType(".gif", "image/gif"),
    "WEBP": FileType(".webp", "image/webp"),
    "TIFF": FileType(".tif", "image/tiff"),
    "BMP": FileType(".bmp", "image/bmp"),
    "AVIF": FileType(".avif", "image/avif"),
    "JPEG2000": FileType(".jp2", "image/jp2"),
    "ICO": FileType(".ico", "image/vnd.microsoft.icon"),
    "PPM": FileType(".pnm", "image/x-portable-anymap"),
    "TGA": FileType(".tga", "image/x-tga"),
    "PCX": FileType(".pcx", "image/vnd.zbrush.pcx"),
    "PSD": FileType(".psd", "image/vnd.adobe.photoshop"),
    "SGI": FileType(".sgi", "image/x-sgi"),
    "QOI": FileType(".qoi", "image/qoi"),
}


DEFAULT_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF")


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of pictures that a plug-in reads (docs/plugins.md). Decoders load it, which load little else.

    `file` is how originals are stored, `begins` how a picture begins, in its first 256 bytes. `load` makes Pillow
    read the format, by the name that it has in the plug-in; afterwards nothing can be imported. It needs `module`,
    which pip installs as `package`.

    With `read_size` pictures have a size and no pixels: nothing is decoded, there are no thumbnails, and no limit
    on pixels holds. It returns width and height, or None if a body, or its beginning, is something else.

    Decoding takes at least `bytes_a_pixel`. It starts threads, if `has_threads`; its errors do not tell too little
    memory from broken bytes, if `hides_memory`. `is_upright`: whether the library has turned a picture of Pillow's
    upright, so that its EXIF no longer counts.
    """

    file: FileType
    begins: re.Pattern[bytes]
    load: Callable[[], None]
    module: str = ""
    package: str = ""
    read_size: Callable[[bytes], tuple[int, int] | None] | None = None
    bytes_a_pixel: int = 4
    has_threads: bool = False
    hides_memory: bool = False
    is_upright: Callable[[Any], bool] | None = None


def utc_now() -> str:
    """Return the present time as ISO 8601 in UTC with offset, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Seed:
    """One line of the seed list, parsed. `priority` is None where the seed does not say it.

    For the spider `pages`: links are followed as far as `scope` (pages/scope.py) and `depth` links away.
    `extra` is what events and dead letter repeat, None for nothing. `mode` is how the picture is fetched if not
    whole: the name of a plug-in's mode, and its value (frontier/modes.py).
    """

    url: str
    identifier: str
    source: str | None
    priority: int | None = None
    again: bool = False
    depth: int | None = None
    scope: str | None = None
    extra: Mapping[str, Any] | None = None
    mode: tuple[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """A send slot: one request of `source` may go out at `moment`, on this worker's `loop.time()`.

    `at` is the same moment on Redis' clock (µs), `rate` the source's rate when the slot was given out. It may be
    used `late` seconds late.
    """

    source: str
    moment: float
    at: int
    rate: float
    late: float

    @property
    def latest(self) -> float:
        """The last moment at which the request may go out."""
        return self.moment + self.late


class Requested(NamedTuple):
    """A request that was written to its connection, and what came of it; counted for its `source`.

    `sent` is when, on Redis' clock (µs), `rate` the source's rate when its slot was given out. `result` is the
    status of the response, or in place of one what the source's last statuses would have, "none" where they would
    have nothing; `received` the bytes of the response's body, as they came over the wire.
    """

    source: str
    sent: int
    rate: float
    result: str
    received: int

    def packed(self) -> list[Any]:
        """Return it as the functions take it, without its source (see note_request.lua)."""
        return [self.sent, self.result, self.received, round(self.rate * 1000)]


@dataclass(slots=True, eq=False)
class Lease:
    """A request that this worker has on loan from the frontier, with its send slot.

    `id` is `<sequence>.<generation of its circuit>:<paying source>`, unique in the frontier. `slot` is the moment,
    on this worker's `loop.time()`, from which the request may be sent, and `latest` the last such moment.
    `deliveries` counts the times it was lost before. `entry` is the stored request, as bytes. `at` and `rate` are
    those of its `Slot`. `request` is the Scrapy request, from its slot to its settlement; `spent` says that it has
    passed the gate, `revoked` that it must not be sent any more: its source was stopped, or others have it.
    `reached_spider` says that a callback or errback was called: what that yields is new, whatever its meta. `sent`
    says that a request was handed to its connection for it, `requested` what came of that. `started` and `fetched`
    are the moments at which Scrapy got it, and at which its download ended, well or not; None before. `unstored`
    counts the requests that it has led to and that are not stored yet.
    """

    id: str
    slot: float
    latest: float
    deliveries: int
    entry: bytes
    at: int = 0
    rate: float = 1.0
    request: Request | None = None
    spent: bool = False
    sent: bool = False
    requested: Requested | None = None
    revoked: bool = False
    reached_spider: bool = False
    started: float | None = None
    fetched: float | None = None
    unstored: int = 0

    def is_fresh(self, now: float) -> bool:
        """Tell whether the slot may still be used at `now`."""
        return now <= self.latest and not self.revoked

    @property
    def source(self) -> str:
        """The source whose slot this lease uses, and which its result counts for."""
        return self.id.partition(":")[2]


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The facts in the bytes of a picture.

    `width` and `height` are stored pixels, before any EXIF orientation. `compression_quality` is the JPEG quality
    1-100 as ImageMagick estimates it, None for other formats. `exif` maps hex tags to JSON values, None when there
    are none. `format` is one of `IMAGE_FORMATS`, or of a plug-in's. `filesize` is in bytes.
    """

    width: int
    height: int
    filesize: int
    compression_quality: int | None
    format: str
    sha256: str
    exif: dict[str, Any] | None

    def named(self) -> dict[str, Any]:
        """Return the facts under their names in events."""
        return {name: getattr(self, name) for name in self.__slots__}


class Thumbnail(NamedTuple):
    """A thumbnail, a JPEG or a WebP, and its size in pixels."""

    data: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """Facts and thumbnails of a picture, the latter in the order of their sizes in the settings, if it has pixels.

    `body` is the picture's without its content codings, where it had any and was asked for. `results` and `errors`
    are of the analyses that `CRAWL_ANALYSES` names, by the names of their functions.
    """

    facts: ImageFacts
    thumbnails: tuple[Thumbnail, ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    results: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)


class StoredThumbnail(NamedTuple):
    """A thumbnail in the storage: its name there, and its size in pixels. It stands in an event as it is."""

    name: str
    width: int
    height: int


class Fetch(NamedTuple):
    """How the site's answer was obtained; these fields stand in an event as they are.

    `final_url` is the URL that answered, `redirects` the number of redirects on the way there. `attempts` counts
    the times that the seed was tried, this one included, whatever it failed of before; a redirect is no attempt
    of its own. `fetch_s` is the seconds from the start of the last request to the last byte of its response, None
    if nothing was downloaded.
    """

    final_url: str
    redirects: int
    attempts: int
    fetch_s: float | None

    @classmethod
    def of(cls, request: Request, url: str) -> Self:
        """Return how `url`, where a request has led, was obtained."""
        meta = request.meta
        took = meta.get(FETCH_TIME)
        return cls(
            final_url=without_userinfo(url),
            redirects=len(meta.get("redirect_urls", ())),
            attempts=1 + meta.get(RETRIES, 0) + meta.get(FREE_RETRIES, 0),
            fetch_s=None if took is None else round(took, 3),
        )


@dataclass(slots=True)
class FetchedImage:
    """Item of the spider: a body that should be a picture. The thumbnail pipeline turns it into an event.

    `said` are the fields of that which request and headers tell, `codings` the body's content codings, in the
    order in which they were applied.
    """

    said: Mapping[str, Any]
    body: bytes = field(repr=False)
    codings: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The source in its event."""
        return str(self.said["source"])


class Event:
    """An event: its stream, and its fields that are left out when they are empty."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    STREAM: ClassVar[str]
    OPTIONAL: ClassVar[frozenset[str]] = frozenset((EXTRA,))
    status: int

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the counts of its source."""
        return {}

    def to_json(self) -> str:
        """Return the event as JSON."""
        data: dict[str, Any] = {"event": self.STREAM}
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "mode":
                data |= {value: True} if value else {}
            elif value or name not in self.OPTIONAL:
                data[name] = [each._asdict() for each in value] if name == "thumbnails" else value
        return one_line(data)


@dataclass(frozen=True, slots=True)
class ImageEvent(Event):
    """Event `image_metadata_updates`, field for field as in docs/events.md."""

    STREAM: ClassVar[str] = "image_metadata_updates"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset(
        (
            *("exif", "tls_failure", *OF_FOUND, "thumbnails", "original", "analysis", "analysis_errors"),
            *(EXTRA, "etag", "last_modified"),
        )
    )

    identifier: str
    url: str
    source: str
    width: int
    height: int
    filesize: int
    compression_quality: int | None
    format: str
    content_type: str | None
    sha256: str
    thumbnail: str | None
    fetched_at: str
    status: int
    final_url: str
    redirects: int
    attempts: int
    fetch_s: float | None
    opt_out: tuple[str, ...] = ()
    exif: dict[str, Any] | None = None
    tls_failure: str | None = None
    found_on: str | None = None
    licence: str | None = None
    alt: str | None = None
    title: str | None = None
    creator: str | None = None
    thumbnails: tuple[StoredThumbnail, ...] = ()
    original: str | None = None
    analysis: Mapping[str, Any] = field(default_factory=dict)
    analysis_errors: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] | None = None
    etag: str | None = None
    last_modified: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the counts of its source."""
        return {"thumbnails": 1, "bytes": self.filesize}


@dataclass(frozen=True, slots=True)
class LinkRotEvent(Event):
    """Event `link_rot`: the source says that the picture, or the page, is gone (404, 410)."""

    STREAM: ClassVar[str] = "link_rot"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset((EXTRA, "mode"))

    identifier: str
    url: str
    source: str
    status: int
    time: str
    final_url: str
    redirects: int
    attempts: int
    fetch_s: float | None
    spider: str = "images"
    extra: Mapping[str, Any] | None = None
    mode: str | None = None  # stands in the event as in `"probe": true`

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the counts of its source."""
        return {"link_rot": 1}


@dataclass(frozen=True, slots=True)
class PageEvent(Event):
    """Event `pages`: a page was fetched and read, field for field as in docs/events.md."""

    STREAM: ClassVar[str] = "pages"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset(("found_on", "discovered_at", "outlinks", EXTRA))

    url: str
    source: str
    status: int
    statuses: tuple[int, ...]
    final_url: str
    redirects: int
    attempts: int
    fetch_s: float | None
    content_type: str | None
    size: int
    wire_size: int
    digest: str | None
    title: str | None
    language: str | None
    licence: str | None
    links: int
    images: int
    depth: int
    fetched_at: str
    record: Mapping[str, Any] | None = None
    revisit: str | None = None
    found_on: str | None = None
    discovered_at: str | None = None
    outlinks: Sequence[Mapping[str, str]] = ()
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MediaEvent(Event):
    """Event `page_media`: a page embeds audio or video with a licence, field for field as in docs/events.md."""

    STREAM: ClassVar[str] = "page_media"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset(("content_type", "title", "creator"))

    url: str
    source: str
    type: str
    licence: str
    found_on: str
    time: str
    content_type: str | None = None
    title: str | None = None
    creator: str | None = None
