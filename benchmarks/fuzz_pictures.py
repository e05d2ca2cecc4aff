"""Mutated pictures: small ones of all formats that can be read here, with bytes changed, cut out, doubled."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from PIL import Image

from crawlproject.imaging.analyse import load_plugins
from crawlproject.imaging.messages import Job
from crawlproject.models import IMAGE_FORMATS
from crawlproject.plugins import format_at, offered

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "JPEG": [{}, {"progressive": True}, {"subsampling": 0}, {"icc_profile": bytes(300)}],
    "PNG": [{}, {"compress_level": 1}],
    "GIF": [{}, {"save_all": True, "append_images": [Image.new("L", (40, 30))] * 3}],
    "WEBP": [{}, {"lossless": True}, {"save_all": True, "append_images": [Image.new("RGB", (64, 48))] * 2}],
    "TIFF": [{"compression": name} for name in (None, "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")],
    "BMP": [{}],
    "AVIF": [{"speed": 10}],
    "JPEG2000": [{}, {"no_jp2": True}, {"tile_size": (16, 16), "irreversible": True}],
    "ICO": [{"sizes": [(64, 48)]}, {"sizes": [(64, 48), (32, 24)], "bitmap_format": "bmp"}],
    "PPM": [{}],
    "TGA": [{}, {"compression": "tga_rle"}],
    "PCX": [{}],
    "SGI": [{}, {"bpc": 2}],
    "QOI": [{}],
    "HEIF": [{"quality": 50}],
    "JXL": [{"effort": 1}, {"effort": 1, "lossless": True, "use_container": True}],
}
# What Pillow does not write.
MADE = [
    b"P3 4 2 15\n# plain\n" + b"0 15 7 " * 8,
    b"P1 8 2\n1010101001010101",
    b"P6 4 2 1000\n" + bytes(range(48)),
    b'<?xml version="1.0"?>\n<!-- a -->\n<svg xmlns="http://www.w3.org/2000/svg" width="64" height="4.5cm"/>',
    b'<!DOCTYPE svg [<!ATTLIST svg width CDATA "9">]><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3"/>',
]
MODES = ("RGB", "L", "RGBA", "P", "1", "CMYK", "I;16", "LA")


def psd(image: Image.Image, packed: bool = False) -> bytes:
    """Return an RGB picture as a PSD: header, no sections, one plane after the other."""
    head = struct.pack(">4sH6xHLLHH", b"8BPS", 1, 3, image.height, image.width, 8, 3) + bytes(12)
    if not packed:
        return head + bytes(2) + b"".join(band.tobytes() for band in image.split())
    row = image.width + 1  # as one literal run
    rows = [
        bytes([image.width - 1]) + band.tobytes()[start : start + image.width]
        for band in image.split()
        for start in range(0, image.width * image.height, image.width)
    ]
    return head + b"\0\1" + struct.pack(">H", row) * len(rows) + b"".join(rows)


def readable() -> tuple[str, ...]:
    """Return the formats that can be read here."""
    needs = {name: format_at(path).module for name, path in offered("formats").items()}
    formats = (*IMAGE_FORMATS, *(name for name, module in needs.items() if not module or find_spec(module)))
    load_plugins(Job(1, 1, 1, 1, formats=formats))
    return formats


def samples() -> list[bytes]:
    """Return small good pictures, each way of writing them with each mode that it takes."""
    base = Image.merge(
        "RGB", [Image.linear_gradient("L").rotate(angle).resize((64, 48)) for angle in (0, 90, 200)]
    )
    exif = Image.Exif()
    exif[0x13B], exif[0x112] = "Ada", 6
    made = [*MADE, psd(base), psd(base, packed=True)]
    for form in sorted(OPTIONS.keys() & set(readable())):
        ways = OPTIONS[form]
        for mode in MODES:
            image = base.convert("I").convert("I;16") if mode == "I;16" else base.convert(mode)
            for way in ways:
                out = io.BytesIO()
                more = {"exif": exif} if form in {"JPEG", "PNG", "WEBP", "TIFF", "AVIF"} else {}
                try:
                    image.save(out, form, **way, **more)
                except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError):  # not in this mode
                    continue
                made.append(out.getvalue())
    return made


def mutated(rng: random.Random, bodies: list[bytes]) -> bytes:
    """Return a body with a few mutations."""
    body = bytearray(rng.choice(bodies))
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        size = len(body)
        # Headers decide most, so they are hit most.
        at = rng.randrange(rng.choice((min(64, size), min(512, size), size))) if size else 0
        match rng.randrange(8):
            case 0 | 1 | 2 if size:
                body[at] = rng.randrange(256)
            case 3 if size:
                body[at] ^= 1 << rng.randrange(8)
            case 4:
                body[at : at + rng.choice((1, 2, 4))] = bytes([rng.choice(INTERESTING)]) * rng.choice((1, 2, 4))
            case 5:
                del body[at : at + rng.randrange(1, 64)]
            case 6:
                body[at:at] = body[at : at + rng.randrange(1, 200)] * rng.choice((1, 2, 50))
            case _:
                other = rng.choice(bodies)
                start = rng.randrange(len(other))
                body[at : at + rng.randrange(64)] = other[start : start + rng.randrange(64)]
    return bytes(body)


def mutations(seed: int) -> Iterator[bytes]:
    """Yield mutated pictures without end, the same for the same seed."""
    rng, bodies = random.Random(seed), samples()
    while True:
        yield mutated(rng, bodies)
