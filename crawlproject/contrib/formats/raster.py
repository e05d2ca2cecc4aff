"""HEIF and JPEG XL, which Pillow reads by plug-ins of its own."""

from __future__ import annotations

import re
from typing import Any

from crawlproject.models import FileType, Format


def _load_heif() -> None:
    import pillow_heif

    # Without these, a small picture that comes with the picture might be decoded instead of it.
    pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False, depth_images=False, aux_images=False)


HEIF = Format(
    file=FileType(".heic", "image/heic"),
    begins=re.compile(rb".{4}ftyp(he[iv].|mif1|msf1)", re.DOTALL),
    load=_load_heif,
    module="pillow_heif",
    package="pillow-heif",
    bytes_a_pixel=16,  # planes and copies
    has_threads=True,  # libde265 has one
)


def _load_jxl() -> None:
    from pillow_jxl import JpegXLImagePlugin

    JpegXLImagePlugin.DECODE_THREADS = 0


def _is_turned(image: Any) -> bool:
    """Tell whether libjxl has turned it, whatever its EXIF says: it leaves a JPEG within alone."""
    return not getattr(image, "jpeg", False)


JXL = Format(
    file=FileType(".jxl", "image/jxl"),
    begins=re.compile(rb"\xff\n|\0\0\0\x0cJXL \r\n\x87\n"),
    load=_load_jxl,
    module="pillow_jxl",
    package="pillow-jxl-plugin",
    hides_memory=True,
    is_upright=_is_turned,
)
