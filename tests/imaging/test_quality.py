"""The estimate of a JPEG's quality against the recorded output of ImageMagick's `identify`."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from PIL import Image, JpegImagePlugin

from crawlproject.imaging.headers import NO_ESTIMATE, estimate_quality

# What identify of ImageMagick 6.9.11-60 printed for the pictures of these names.
RECORDED = {
    **{f"{kind}-{quality}": quality for kind in ("cmyk", "progressive") for quality in (1, 2, 30, 50, 51, 85, 99)},
    **{"preset-web_low": 61, "preset-web_high": 86, "preset-high": 92, "preset-maximum": 94},
    **{
        "preset-grey-web_low": 53,
        "preset-grey-web_high": 87,
        "preset-grey-high": 92,
        "preset-grey-maximum": 95,
    },
    **{
        "odd-1": 95,
        "odd-3": 95,
        "odd-5": 92,
        "odd-7": 70,
        "odd-24": 92,
        "odd-25": 50,
        "odd-48": 16,
        "odd-49": 97,
    },
    **{"odd-grey-1": 99, "odd-grey-3": 92, "odd-grey-5": 51, "odd-grey-17": 45, "odd-grey-21": 16},
    **{"flat-1": 100, "flat-2": 99, "flat-16": 87, "flat-255": 1, "flat-grey-1": 100, "flat-grey-255": 1},
    **{"peak-0-2": 83, "peak-0-53": 83, "peak-0-54": 93, "peak-1-0": 83, "peak-1-62": 93, "peak-1-63": 83},
    **{"three-tables-1": 96, "three-tables-16": 90, "three-tables-255": 92},
}


def jpeg(mode: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (24, 16), 128 if mode == "L" else "olive").save(out, "JPEG", **options)
    return out.getvalue()


def odd_tables(seed: int) -> list[list[int]]:
    """One to four tables that no quality setting makes: libjpeg's, each entry more or less off."""
    rng = random.Random(seed)
    scale, spread = rng.choice([0.03, 0.1, 0.3, 1, 3]), rng.choice([0, 0.1, 0.5])
    standard = tables(jpeg("RGB", quality=50))
    return [
        [
            max(1, min(255, round(entry * scale * rng.uniform(1 - spread, 1 + spread))))
            for entry in standard[number % 2]
        ]
        for number in range(rng.randint(1, 4))
    ]


def made(name: str) -> bytes:
    """Return the picture of a name in RECORDED."""
    kind, _, last = name.rpartition("-")
    if kind.startswith("preset"):
        return jpeg("L" if "grey" in kind else "RGB", quality=last)
    number = int(last)
    if kind.startswith("peak"):
        flat = [[9] * 64, [9] * 64]
        flat[int(kind[5:])][number] = 60
        return jpeg("RGB", qtables=flat)
    return {
        "odd": lambda: jpeg("CMYK", qtables=odd_tables(number)),
        "odd-grey": lambda: jpeg("L", qtables=odd_tables(1000 + number)[:1]),
        "flat": lambda: jpeg("RGB", qtables=[[number] * 64] * 2),
        "flat-grey": lambda: jpeg("L", qtables=[[number] * 64]),
        "three-tables": lambda: jpeg("RGB", qtables=[[number] * 64, [9] * 64, [3] * 64]),
        "cmyk": lambda: jpeg("CMYK", quality=number),
        "progressive": lambda: jpeg("RGB", quality=number, progressive=True),
    }[kind]()


def tables(body: bytes) -> dict[int, list[int]]:
    image = Image.open(io.BytesIO(body))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image.quantization


def test_equals_what_identify_printed_once() -> None:
    assert {name: estimate_quality(tables(made(name))) for name in RECORDED} == RECORDED


@pytest.mark.parametrize("quality", range(1, 101))
def test_finds_the_quality_given_to_libjpeg(quality: int) -> None:
    assert estimate_quality(tables(jpeg("RGB", quality=quality))) == quality
    assert estimate_quality(tables(jpeg("L", quality=quality))) == quality


@pytest.mark.parametrize(("quality", "said"), [(80, NO_ESTIMATE), (85, 63), (90, 76), (95, 88)])
def test_table_numbers_matter_as_they_do_to_identify(quality: int, said: int) -> None:
    luminance, chrominance = tables(jpeg("RGB", quality=quality)).values()
    # Recorded from pictures whose tables had been renumbered.
    assert estimate_quality({0: luminance, 2: chrominance}) == said
    assert estimate_quality({1: chrominance, 3: luminance}) == NO_ESTIMATE
