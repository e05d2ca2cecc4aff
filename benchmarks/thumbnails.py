"""How good thumbnails are: PSNR and SSIM against a full decode and Pillow's Lanczos, of the same size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

Plane = NDArray[np.float64]

# Wang et al., "Image quality assessment: from error visibility to structural similarity", 2004.
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_WINDOW = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
_WINDOW /= _WINDOW.sum()

Image.MAX_IMAGE_PIXELS = None


class Quality(NamedTuple):
    """How near a thumbnail is to the reference: PSNR in dB over RGB, SSIM of the luminance, 1 at best."""

    psnr: float
    ssim: float


def comparable(picture: Path) -> bool:
    """Tell whether a picture has one right rendering: no transparency, 8 bits, of the size that SSIM needs."""
    with Image.open(picture) as image:
        return not image.has_transparency_data and image.mode in {"RGB", "L", "P", "CMYK"} and min(image.size) > 64


def longest_side(picture: Path) -> int:
    """Return the longest side of a picture in pixels, 0 of what cannot be read."""
    try:
        with Image.open(picture) as image:
            return max(image.size)
    except OSError:
        return 0


def quality(thumbnail: Path, picture: Path) -> Quality:
    """Return how good a thumbnail of `picture` is."""
    with Image.open(thumbnail) as image:
        small = image.convert("RGB")
    with Image.open(picture) as image:
        reference = ImageOps.exif_transpose(image).convert("RGB").resize(small.size, Image.Resampling.LANCZOS)
    ours, theirs = np.asarray(small, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    error = float(((ours - theirs) ** 2).mean())
    psnr = 10 * math.log10(255**2 / error) if error else math.inf
    return Quality(psnr, _ssim(_luminance(small), _luminance(reference)))


def _luminance(image: Image.Image) -> Plane:
    return np.asarray(image.convert("L"), dtype=np.float64)


def _blurred(plane: Plane) -> Plane:
    """Return the plane under an 11 x 11 Gaussian window, where it lies wholly inside."""
    edge = len(_WINDOW) - 1
    rows, columns = plane.shape[0] - edge, plane.shape[1] - edge
    down: Plane = sum((w * plane[i : i + rows] for i, w in enumerate(_WINDOW)), np.zeros(()))
    return sum((w * down[:, i : i + columns] for i, w in enumerate(_WINDOW)), np.zeros(()))


def _ssim(one: Plane, two: Plane) -> float:
    mean_one, mean_two = _blurred(one), _blurred(two)
    variance_one = _blurred(one**2) - mean_one**2
    variance_two = _blurred(two**2) - mean_two**2
    covariance = _blurred(one * two) - mean_one * mean_two
    above = (2 * mean_one * mean_two + _C1) * (2 * covariance + _C2)
    below = (mean_one**2 + mean_two**2 + _C1) * (variance_one + variance_two + _C2)
    return float((above / below).mean())
