"""Pictures, and what a decoder makes of them, in this process."""

from __future__ import annotations

import io
import math
import random
import re
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageStat

from crawlproject.imaging import analyse as module
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import Job
from crawlproject.models import Analysis, FileType, Format

# A format of a plug-in, whose pictures have a size and no pixels, and with which decoders may start threads.
DRAWN = Format(
    file=FileType(".drawn", "image/x-drawn"),
    begins=re.compile(b"drawn"),
    load=lambda: None,
    has_threads=True,
    read_size=lambda body: (30, 20) if body.startswith(b"drawn") else None,
)
PLUGINS = {"DRAWN": f"{__name__}:DRAWN"}


def picture(form: str = "JPEG", size: tuple[int, int] = (90, 60), mode: str = "RGB", **options: Any) -> bytes:
    """Return a gradient in a format of Pillow's."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(out, form, **options)
    return out.getvalue()


def broken(body: bytes, rng: random.Random) -> bytes:
    """Return a picture with a few bytes changed, often in its header."""
    changed = bytearray(body)
    for _ in range(rng.choice([1, 3, 10])):
        changed[rng.randrange(rng.choice([60, len(changed)]))] = rng.choice([0, 255, rng.randrange(256)])
    return bytes(changed)


def psnr(one: Image.Image, other: Image.Image) -> float:
    """Return how alike they are, in dB."""
    difference = ImageChops.difference(one.convert("RGB"), other.convert("RGB"))
    return 10 * math.log10(255**2 * 3 * one.width * one.height / max(sum(ImageStat.Stat(difference).sum2), 1e-9))


def analyse(body: bytes, *, memory: float = math.inf, **job: Any) -> Analysis:
    """Analyse it by a job with these fields."""
    fields = {"max_pixels": 10**8, "max_size": 10**9, "quality": 85, "timeout": 60, **job}
    return module.analyse(body, Job(**fields), memory)


def refused(body: bytes, **job: Any) -> UnreadableImage:
    """Return the error by which a picture is unreadable."""
    with pytest.raises(UnreadableImage) as caught:
        analyse(body, **job)
    assert str(caught.value).isprintable()
    assert 0 < len(str(caught.value)) < 250
    return caught.value


def reason(body: bytes, **job: Any) -> str:
    """Return why a picture is unreadable."""
    return str(refused(body, **job))
