"""One picture, from bytes to facts and thumbnails; and the program that does this.

The bytes may be anything: a page of HTML, half a file, an attack. Whatever is wrong with them raises
`UnreadableImage`.

`main` is the program of a decoder process: bodies in, facts and thumbnails out, over the socket that is its stdin.
It loads neither Scrapy nor the settings. Damage by hostile bytes stays in this process: before it reads the first
it gives up all else that it could do (`sandbox.py`), its memory and its CPU time for one picture are limited, and
it ends with its parent. `decoders.py` starts it.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import logging
import math
import os
import resource
import socket
import struct
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from pkgutil import resolve_name

from PIL import AvifImagePlugin, Image, ImageFile, UnidentifiedImageError
from PIL.ExifTags import Base
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from crawlproject.imaging import analysis_runner, headers, png, sandbox
from crawlproject.imaging import codings as content_codings
from crawlproject.imaging import messages as protocol
from crawlproject.imaging.failures import MemoryNeeded, TooLargeImage, UnreadableImage
from crawlproject.imaging.headers import Header, read_facts, stored_size
from crawlproject.imaging.messages import Job
from crawlproject.imaging.thumbnail import miniature_of, thumbnails_of
from crawlproject.models import IMAGE_FORMATS, Analysis, ImageFacts

# Pillow copies up to a megabyte for each comment among the plain numbers of a PPM: a megabyte of comments would
# take minutes.
MAX_COMMENTS = 100

# The end of a TGA. Its beginning is like that of many files, and earlier versions have no such end.
_TGA_FOOTER = b"TRUEVISION-XFILE.\0"

_json = json.JSONEncoder(ensure_ascii=False).encode  # EXIF may be three times as long in ASCII

# Load all plugins now, rather than in the first thread that meets an unknown format.
Image.init()
# Broken EXIF is common. Pillow words its warnings differently each time, and each would be a line of the log.
warnings.filterwarnings("ignore", module=r"PIL\.")
# Pillow logs a debug line for every chunk and tag. Scrapy would drop these only in its handler.
logging.getLogger("PIL").setLevel(logging.INFO)


def set_up_pillow() -> None:
    """Set what holds for the whole process, whatever other libraries have set.

    `max_pixels` decides, per call, and Pillow's limit neither warns nor raises. What is cut short is unreadable.
    Several pictures are decoded at a time instead of one in several threads.
    """
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False


set_up_pillow()


def analyse(
    body: bytes, job: Job, memory: float = math.inf, functions: Mapping[str, analysis_runner.Analyse] | None = None
) -> Analysis:
    """Return facts and thumbnails of the picture in `body`, in one of the job's formats.

    One whose format has no pixels has no thumbnails.

    `functions` are analyses by their names; each gets the picture in the largest of its sizes.

    A picture of more than `max_pixels` pixels is refused before anything is decoded. Raises UnreadableImage, with
    a reason of one line and what its header says, and MemoryError; before decoding that is MemoryNeeded, if it
    would take more than `memory` bytes.
    """
    if not body:
        raise UnreadableImage("empty body")
    names = [name for name in job.formats if begins_like(name, body, job) and job.has_pixels(name)]
    if not names:
        name, side = measured(body, job)
        return Analysis(_bare_facts(name, side, body))
    name = names[0]
    plugin = job.plugin(name)
    image: ImageFile.ImageFile | None = None
    facts: ImageFacts | None = None
    header: Header | None = None
    try:
        if name in headers.BOUNDS:
            with suppress(struct.error, OverflowError):  # Pillow will say what is broken
                headers.BOUNDS[name](body)
        if name in headers.READERS and (header := headers.READERS[name](body)) is not None:
            check_size(name, header[:2], job.max_pixels, memory, header.memory)
        image = opened(body, names)
        plugin = job.plugin(str(image.format))  # an AVIF and a HEIF may begin alike
        for size in _sizes(image):
            needed = size[0] * size[1] * (plugin.bytes_a_pixel if plugin else _bytes_a_pixel(image))
            check_size(str(image.format), size, job.max_pixels, memory, needed)
        if isinstance(image, JpegImageFile):
            headers.bound_scans(body, header or headers.jpeg(body))
        if isinstance(image, (JpegImageFile, WebPImageFile)):
            image.decodermaxblock = sys.maxsize  # one piece: of 64 KiB, libjpeg would look back and WebP be copied
        if _codec(image) == "ppm_plain" and body.count(b"#") > MAX_COMMENTS:
            raise UnreadableImage(f"PPM: more than {MAX_COMMENTS} comments")
        if isinstance(image, PngImageFile) and not png.load(image):  # its EXIF may come after its pixels
            image = opened(body, names)
            image.load()
        facts = read_facts(image, body)
        upright = plugin is not None and plugin.is_upright is not None and plugin.is_upright(image)
        miniature = miniature_of(image, job.sizes, job.mode, upright, job.enlarge)
        thumbnails = thumbnails_of(miniature, job.sizes, job.mode, job.quality, job.form, job.enlarge)
        return Analysis(facts, thumbnails, b"", *analysis_runner.run(functions or {}, miniature.image))
    except MemoryError:
        raise
    except Exception as error:  # on broken bytes Pillow may raise nearly anything
        hides_memory = name == "JPEG2000" if plugin is None else plugin.hides_memory
        if hides_memory and memory < protocol.MAX_MEMORY:  # it does not tell that from too little memory
            raise MemoryNeeded(reason_of(name, error)) from error
        reason = str(error) if isinstance(error, UnreadableImage) else reason_of(name, error)
        raise UnreadableImage(reason, facts or _facts_of_header(name, header, image, body)) from error


def load_plugins(job: Job) -> tuple[Job, dict[str, str]]:
    """Have Pillow read what plug-ins add to the job's formats, and load their inspections.

    Return the job without the formats that cannot be loaded, and what cannot be, with the reason.
    """
    broken: dict[str, str] = {}
    for name, path in (*job.plugins.items(), *job.inspections.items()):
        try:
            one = resolve_name(path)  # also of formats that are left out: they are known by their beginnings
            if name in job.formats and path == job.plugins.get(name):
                one.load()
        except BaseException as error:  # a module that exits is as bad as one that is missing
            broken[name] = f"{path}: {type(error).__name__}: {error!s:.300}"
    return (job.without(broken) if broken else job), broken


def measured(body: bytes, job: Job) -> tuple[str, tuple[int, int]]:
    """Return format and size of a picture without pixels. Raises UnreadableImage if it is none."""
    for name in job.formats:
        one = job.plugin(name)
        try:
            size = one.read_size(body) if one is not None and one.read_size is not None else None
        except (MemoryError, UnreadableImage):
            raise
        except Exception as error:  # as on all broken bytes
            raise UnreadableImage(reason_of(name, error)) from error
        if size is not None:
            return name, size
    raise UnreadableImage(unsupported(body, job))


def _facts_of_header(
    name: str, header: Header | None, image: ImageFile.ImageFile | None, body: bytes
) -> ImageFacts | None:
    """Return what is known of a picture that could not be decoded; None if nothing is. `image`: it was opened."""
    try:
        if image is not None:
            return read_facts(image, body)
        if header is None or min(header[:2]) < 1:
            return None
        # Pillow opens none but whole WebPs, whose EXIF comes after the pixels.
        return _bare_facts(name, header[:2], body)
    except MemoryError:
        raise
    except Exception:  # as above
        return None


def _bare_facts(name: str, size: tuple[int, int], body: bytes) -> ImageFacts:
    return ImageFacts(*size, len(body), None, name, hashlib.sha256(body).hexdigest(), None)


def opened(body: bytes, formats: list[str]) -> ImageFile.ImageFile:
    """Return a picture, opened by Pillow as one of these formats. Raises nearly anything if it is broken."""
    try:
        return Image.open(io.BytesIO(body), formats=formats)
    except UnidentifiedImageError:
        if b"Exif\0\0" not in body:
            raise
        # Pillow looks for a JPEG's resolution in its EXIF, and fails to open the picture if that EXIF is broken.
        return Image.open(io.BytesIO(body.replace(b"Exif\0\0", b"Fixe\0\0")), formats=formats)


def check_size(form: str, size: tuple[int, int], max_pixels: int, memory: float, needed: int) -> None:
    """Refuse a picture that would take too much memory to decode."""
    width, height = size
    if width * height > max_pixels:
        raise UnreadableImage(f"too many pixels: {width} x {height}, CRAWL_MAX_PIXELS is {max_pixels}")
    if needed > memory:
        raise MemoryNeeded(f"some {needed / 1e6:.0f} MB for {form} of {width} x {height} pixels")


def _sizes(image: ImageFile.ImageFile) -> list[tuple[int, int]]:
    """Return the sizes of the parts that are decoded as a whole."""
    sizes = [stored_size(image)]
    if isinstance(image, TiffImageFile):
        # A tile is decoded as a whole, however little of it the picture needs: 16 x 16 pixels can take gigabytes.
        sizes.append((image.tag_v2.get(Base.TileWidth, 0), image.tag_v2.get(Base.TileLength, 0)))
    return sizes


def _bytes_a_pixel(image: ImageFile.ImageFile) -> int:
    """Return roughly how many bytes decoding takes per stored pixel; an underestimate, if anything."""
    if isinstance(image, JpegImageFile):
        return 1  # at least; `headers.jpeg` knows better
    # Pillow keeps a picture at 4 bytes a pixel. AVIF and JPEG 2000 add planes and copies, what Pillow
    # decodes in Python a copy or two. An icon is decoded by now.
    slow = _codec(image) in ("ppm", "ppm_plain", "qoi")
    return {"AVIF": 12, "JPEG2000": 28}.get(str(image.format), 12 if slow else 4)


def _codec(image: ImageFile.ImageFile) -> str:
    """Return Pillow's name of the decoder."""
    return image.tile[0].codec_name if image.tile else ""


def reason_of(name: str, error: Exception) -> str:
    """Return one line on why the body could not be read, in Pillow's own words if it has any."""
    if isinstance(error, (UnidentifiedImageError, IndexError, StopIteration)):
        return f"{name}: broken header, or no width or height"
    return f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}"


def unsupported(body: bytes, job: Job) -> str:
    """Return one line on a body that begins like none of the formats."""
    others = (name for name in (*IMAGE_FORMATS, *job.plugins) if name not in job.formats)
    if (known := next((name for name in others if begins_like(name, body, job)), None)) is not None:
        return f"not a picture in a supported format: {known}, which CRAWL_FORMATS leaves out"
    begins = ascii(body[:16].decode("latin-1"))
    return f"not a picture in a supported format ({', '.join(job.formats)}), begins with {begins}"


def begins_like(name: str, body: bytes, job: Job) -> bool:
    """Tell whether a body begins like a picture of this format; a TGA is known by its end."""
    if (plugin := job.plugin(name)) is not None:
        return plugin.begins.match(body[:256]) is not None
    if name == "TGA":
        return body.endswith(_TGA_FOOTER)
    accept = Image.OPEN[name][1]
    return accept is not None and accept(body[:16]) is True


def main() -> None:
    """Answer requests until the parent is gone. The only argument is the job, as JSON."""
    with suppress(ConnectionError):
        _serve(Job(**json.loads(sys.argv[1])))


def _serve(job: Job) -> None:
    channel = socket.socket(fileno=0)
    stream = channel.makefile("rb")
    # All that decoding may ever import; nothing can be imported afterwards.
    job, broken = load_plugins(job)
    content_codings.load()
    try:
        functions = analysis_runner.load(job.analyses)
    except analysis_runner.BadAnalysis as error:
        _send(channel, protocol.BAD_ANALYSIS, str(error))
        return
    set_up_pillow()  # which libraries of analyses set otherwise, for the whole process
    idle = _address_space()
    if idle is not None:
        _limit_memory(idle + protocol.MAX_MEMORY, hard=True)
    missing = sandbox.enter(
        threads=any(one.has_threads for one in map(job.plugin, job.formats) if one is not None)
    )
    gc.freeze()  # what is loaded stays; looking through it takes a hundredth of the time
    _send(channel, protocol.READY, _json([missing, broken]))
    # Silence stderr, too: from here on only C libraries write there, and nothing of use.
    os.dup2(1, 2)
    while request := stream.read(protocol.REQUEST.size):
        memory, wanted, names, length = protocol.REQUEST.unpack(request)
        if idle is not None:
            _limit_memory(idle + memory)
        codings = list(filter(None, _receive(stream, names).decode().split(",")))
        body = _receive(stream, length)
        looking = functions if wanted == protocol.ANALYSED else {}
        # Of a share half is for what the estimate leaves out; all memory is tried, whatever is left out.
        expected = memory if memory == protocol.MAX_MEMORY else memory // 2
        _send(channel, *_reply(wanted, codings, body, job, expected, looking))


def _reply(
    wanted: int,
    codings: list[str],
    body: bytes,
    job: Job,
    expected: int,
    functions: Mapping[str, analysis_runner.Analyse],
) -> tuple[bytes, str, bytes]:
    try:
        if wanted >= protocol.INSPECTIONS:
            inspect = resolve_name(list(job.inspections.values())[wanted - protocol.INSPECTIONS])
            return protocol.INSPECTED, _json(inspect(body, codings, job)), b""
        body = content_codings.decoded(body, codings, job.max_size)
        made = analyse(body, job, expected, functions)
    except TooLargeImage as error:
        return protocol.TOO_LARGE, str(error), b""
    except UnreadableImage as error:
        return protocol.UNREADABLE, _json([str(error), error.facts and error.facts.named()]), b""
    except MemoryError as error:
        return protocol.NO_MEMORY, str(error), b""
    if job.return_bodies and codings:
        made = replace(made, body=body)
    return protocol.ANALYSIS, *protocol.packed(made)


def _address_space() -> int | None:
    """Return this process's address space in bytes; None on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return None
    return pages * resource.getpagesize()


def _limit_memory(size: int, hard: bool = False) -> None:
    """Limit the address space, in bytes; if `hard`, for good."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_AS, (size, size if hard else most))


def _receive(stream: BufferedIOBase, length: int) -> bytes:
    body = stream.read(length)
    if len(body) < length:
        raise ConnectionError("the parent is gone")
    return body


def _send(channel: socket.socket, kind: bytes, text: str = "", data: bytes = b"") -> None:
    words = text.encode(errors="backslashreplace")
    channel.sendall(protocol.REPLY.pack(kind, len(words), len(data)) + words + data)
